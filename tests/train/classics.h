// A fault that a training system has shipped, in a layout where `verify` must see it, and how one
// is planted.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/program/validate.h"
#include "lockstep/verify/verify.h"
#include "tests/train/hooked_workspace.h"
#include "tests/train/small.h"

namespace lockstep::train {

using program::CommGroup;
using program::Effects;
using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueKind;
using Inner = exec::Workspace&;
using Numbers = std::vector<double>;

inline constexpr Seconds kClassicDeadline = {5.0};

inline verify::Fault hooked(std::function<Hooks(Rank)> make) {
  verify::Fault fault;
  fault.wrap = [make = std::move(make)](exec::Workspace& inner, Rank rank) {
    return std::make_unique<HookedWorkspace>(inner, make(rank));
  };
  return fault;
}

inline verify::Fault counting(std::function<std::int64_t(std::int64_t, Inner)> count) {
  return hooked([count](Rank) { return Hooks{.count = count}; });
}

// Calls `change` on what ranks other than the first of a tensor group of two bring.
inline verify::Fault bringing_more(std::function<void(exec::StepSums&, Inner)> change) {
  return hooked(
      [change](Rank rank) { return rank.value % 2 == 0 ? Hooks{} : Hooks{.sums = change}; });
}

struct Classic {
  const char* name;
  const char* seen;  // where others met it, if that is public
  bool tied;
  const char* layout;
  verify::FailureKind failure_kind;
  std::function<verify::Fault(const Program&)> plant;
};

using P = const Program&;

// Plants each in its layout, whose sound run must pass. Returns how many were noticed.
inline int plant_all(verify::Verifier& verifier, std::span<const Classic> classics, bool tied) {
  int found = 0;
  for (const Classic& classic : classics) {
    if (classic.tied != tied) continue;
    SCOPED_TRACE(classic.name);
    const spec::Layout layout = spec::parse_layout(classic.layout).value();
    const auto sound = verifier.check(layout);
    EXPECT_TRUE(sound.ok() && sound->ok()) << (sound.ok() ? sound->failure : sound.error().message);
    const verify::Fault none = hooked([](Rank) { return Hooks{}; });
    EXPECT_EQ(verifier.check_fault(layout, none, kClassicDeadline).failure, "");
    const verify::Fault fault = classic.plant(verifier.job(layout)->program);
    const verify::Verdict verdict = verifier.check_fault(layout, fault, kClassicDeadline);
    EXPECT_EQ(to_text(verdict.failure_kind), to_text(classic.failure_kind)) << verdict.failure;
    EXPECT_FALSE(fault.program && program::validate(*fault.program, 1).empty());
    found += verdict.failure_kind != verify::FailureKind::kNothing;
    std::cout << classic.name << (*classic.seen ? " (" : "") << classic.seen
              << (*classic.seen ? ")" : "") << ": " << to_text(verdict.failure_kind) << ", "
              << verdict.failure << "\n";
  }
  return found;
}

}  // namespace lockstep::train

// One row per kind of op: its token, its name for people, which of its numbers it uses and where it
// runs; and which ranks take part in each kind.
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/program/effects.h"
#include "lockstep/program/program.h"

namespace lockstep::program {

// The numbers of an Op, in the order in which op_token writes them.
struct OpField {
  std::string_view name;
  std::int32_t Op::* member;
};
inline constexpr OpField kOpFields[] = {{"unit", &Op::unit},
                                        {"microbatch", &Op::microbatch},
                                        {"period", &Op::period},
                                        {"transfer", &Op::transfer},
                                        {"target", &Op::target}};
inline constexpr int kNumOpFields = 5;

// Which of kOpFields; an unused number is -1.
struct UsedFields {
  std::uint8_t bits = 0;
  constexpr bool operator[](int field) const { return (bits >> field & 1) != 0; }
};

struct OpRow {
  OpKind kind;
  std::string_view token;  // "gather"
  std::string_view words;  // "gather"; what it is applied to follows
  UsedFields uses;
  Lane lane;              // a Wait is on that of its target
  bool is_async = false;  // it returns before it is done and needs a Wait
};

const OpRow& op_row(OpKind kind);

// Whether all it meets come to it at once, in the order of their lists, and the last is waited for.
inline bool is_blocking_collective(OpKind kind) {
  return kind == OpKind::kNorm || kind == OpKind::kReduceTied;
}

OpKind op_kind(pipeline::PassKind kind);  // of the ops that a pass is made of

// The group that such an op needs in such a step.
CommGroup usual_group(const StepShape& step, const Op& op);

std::string_view to_text(CommGroup group);  // "data_then_pipeline"

}  // namespace lockstep::program

// Faults planted at every part of every pass of units, by kind of part: each is reported with the
// names of both ops. Collectives are calls of communicators (planted_test.cc).
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>

#include "lockstep/comm/local/local.h"
#include "lockstep/tensor/as_buffer.h"
#include "tests/glass/planted.h"
#include "tests/glass/race.h"
#include "tests/glass/unit_rig.h"
#include "tests/train/families.h"

namespace lockstep::nn {
namespace {

using glass::OpPlanter;
using glass::Planted;
using glass::Tallies;
using glass::Used;
using parts::Kind;
using parts::UnitPass;
using parts::ValueId;

// What touches no memory of its operands, or none at all.
bool is_idle(Kind kind) {
  return kind == Kind::kReserve || kind == Kind::kSplit || parts::row_of(kind).view;
}
// What is planted where collectives are begun or waited for is the affair of planted_test.cc.
bool is_of_collectives(Kind kind) { return parts::row_of(kind).collective || kind == Kind::kWait; }

// Runs passes with faults at every part.
class PlantedRun {
 public:
  PlantedRun(const UnitRunner& runner, const PassInputs& inputs, OpPlanter* planter)
      : runner_(runner), inputs_(inputs), planter_(planter) {}

  void run(UnitPass name, at::Tensor given, Kept& kept) {
    const auto is_planted = [&](const parts::Pass& pass, std::size_t i) {
      return planter_ != nullptr && !is_of_collectives(pass.parts[i].kind);
    };
    run_parts(
        runner_, inputs_, name, std::move(given), kept,
        [&](const parts::Pass& pass, std::size_t i, PassRun& run) {
          const parts::Part& part = pass.parts[i];
          if (is_planted(pass, i))
            planter_->before(text(part, i), to_text(part.kind), used(pass, part, run),
                             tensors(pass.ends[i], run));
        },
        [&](const parts::Pass& pass, std::size_t i, PassRun& run) {
          const parts::Part& part = pass.parts[i];
          if (is_planted(pass, i)) planter_->behind(made(pass, part, run), is_idle(part.kind));
        });
  }

 private:
  static std::string text(const parts::Part& part, std::size_t i) {
    return std::string(to_text(part.kind)) + " " + std::string(part.param) + "#" +
           std::to_string(i);
  }
  // Names that no other has.
  std::vector<Used> tensors(const std::vector<ValueId>& storages, PassRun& run) const {
    std::vector<Used> all;
    for (const ValueId storage : std::set<ValueId>(storages.begin(), storages.end()))
      if (const at::Tensor& tensor = run.memory(storage); tensor.defined())
        all.push_back({std::string(runner_.passes().values()[storage].name) + "@" +
                           std::to_string(static_cast<int>(storage)),
                       tensor.view({-1})});
    return all;
  }
  std::vector<ValueId> storages(const parts::Pass& pass, const std::vector<ValueId>& ids) const {
    std::vector<ValueId> all;
    for (const ValueId id : ids) all.push_back(pass.storage(id));
    return all;
  }
  // Norms that are made again on a device make their statistics again, too.
  std::vector<Used> used(const parts::Pass& pass, const parts::Part& part, PassRun& run) {
    const bool is_again = part.kind == Kind::kRmsNormAgain || part.kind == Kind::kLayerNormAgain;
    return tensors(storages(pass, is_again ? std::vector{part.in[0]} : part.in), run);
  }
  std::vector<Used> made(const parts::Pass& pass, const parts::Part& part, PassRun& run) {
    std::vector<Used> all = tensors(storages(pass, part.out), run);
    if (writes_gradient(part)) all.push_back({"gradients", run.grads()});
    return all;
  }

  const UnitRunner& runner_;
  const PassInputs& inputs_;
  OpPlanter* const planter_;
};

// On one of the ranks; those beside it, whose `tallies` are absent, only take part.
void plant_in_passes(const spec::Spec& spec, const Ways& ways, comm::World& world, Planted kind,
                     Tallies* tallies) {
  std::optional<OpPlanter> planter;
  if (tallies != nullptr) planter.emplace(kind, tensor::torch_device_of(world.device()), *tallies);
  for_each_unit(spec, ways, world,
                [&](const UnitRunner& runner, const PassInputs& inputs, const at::Tensor& rows) {
                  PlantedRun run(runner, inputs, planter ? &*planter : nullptr);
                  run_chains(runner, rows, [&](UnitPass pass, at::Tensor given, Kept& kept) {
                    run.run(pass, std::move(given), kept);
                  });
                });
  glass::Race::say_what_runs("");
}

constexpr Ways kWays[] = {{},
                          {.tp = 2},
                          {.cp = 2},
                          {.cp = 2, .context = model::CpMethod::kGather},
                          {.cp = 2, .context = model::CpMethod::kUlysses}};

class PlantedInParts : public testing::TestWithParam<Planted> {};

TEST_P(PlantedInParts, AreReportedWithTheNamesOfBoth) {
  Tallies tallies;
  std::vector<spec::Spec> specs = train::family_specs();
  specs.push_back(train::tiny_spec(/*tied=*/false, DType::kF64));
  for (spec::Spec& spec : specs)
    for (const DType dtype : {DType::kF64, DType::kBF16})
      for (const Ways& ways : kWays) {
        // Parts of context groups are the same in every family, but for capped scores.
        if (ways.cp > 1 && &spec != &specs.back() && spec.model.attention_softcap == 0) continue;
        SCOPED_TRACE(spec.model.name + " " + std::string(to_text(dtype)));
        spec.train.dtype = dtype;
        spec.device = DeviceKind::kCuda;
        const comm::WorldWrap wires = glass::new_tested_wires();
        glass::race().take_reports();
        comm::run_local(ways.tp * ways.cp, [&](comm::World& host) {
          const auto world = wires(host);
          plant_in_passes(spec, ways, *world, GetParam(),
                          host.rank().value == 0 ? &tallies : nullptr);
        });
      }
  expect_all_seen(tallies);
}

INSTANTIATE_TEST_SUITE_P(Every, PlantedInParts,
                         testing::Values(Planted::kHostRead, Planted::kMissingWait,
                                         Planted::kMissingWaitBack, Planted::kEarlyFree),
                         [](const auto& tested) {
                           std::string name(to_text(tested.param));
                           std::ranges::replace(name, ' ', '_');
                           return name;
                         });

}  // namespace
}  // namespace lockstep::nn

// Times of layers against the lists that their passes are.
#include "lockstep/cost/analytic/layer_time.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/model/arch.h"
#include "lockstep/parts/unit_passes.h"
#include "tests/cost/analytic/requests.h"

namespace lockstep::cost {
namespace {

// Sums over all tensor ranks in the forward pass of a unit, as scatters.
std::int64_t sums_of(const model::ModelConfig& config, int unit, const model::UnitSizes& sizes) {
  const model::Model model = *model::describe(config);
  const parts::UnitPasses passes(config, model.unit(unit), sizes);
  return std::ranges::count_if(
      passes.collectives(parts::UnitPass::kForward), [](const parts::Collective& one) {
        return one.kind == parts::Kind::kReduceScatter && one.group == parts::Group::kTensor;
      });
}

// A block of experts that are whole on every tensor rank sums what attention and shared experts
// make; one without shared experts only the former; a dense block both halves.
TEST(LayerTime, SumsOverTensorRanksAreThoseOfTheList) {
  for (const std::int64_t shared : {0, 1408}) {
    model::ModelConfig config = model::find("mixtral-8x7b")->config;
    config.moe.dense_layers = 1;
    config.ffn = 14336;
    config.moe.shared_ffn = shared;
    Rig rig(shape_of(config), "h100:8");
    PriceRequest& r = rig.request;
    r.tp = 4, r.dp = 2, r.ep = 2, r.etp = 1, r.global_batch = 8;
    r.stack.jitter = 0;
    const model::UnitSizes sizes = {
        .seq = 64, .tp = 4, .sequence_parallel = true, .ep = 2, .etp = 1};
    const LayerTimes times = layer_times(r);
    const double one = times.made.plain.tensor_forward / 2;
    ASSERT_GT(one, 0);
    EXPECT_EQ(sums_of(config, 1, sizes), 2);
    EXPECT_DOUBLE_EQ(times.made.routed.tensor_forward / one,
                     static_cast<double>(sums_of(config, 2, sizes)))
        << shared;
  }
}

}  // namespace
}  // namespace lockstep::cost

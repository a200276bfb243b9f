// A block whose experts are on several ranks, each with tokens of its own, against the same block
// on ranks that have all experts: outputs, gradients of inputs and of what ranks hold alike are
// those of each rank alone, gradients of an expert the sum of all ranks'.
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "lockstep/comm/local/local.h"
#include "lockstep/nn/unit_runner.h"
#include "tests/nn/oracle.h"

namespace lockstep::nn {
namespace {

using parts::UnitPass;

struct Ran {
  at::Tensor out = {}, d_input = {}, own = {}, experts = {};
  model::RowsMet met = {};
};

// What one rank computes; chain 0: B, 1: I and W, 2: recomputed and B.
struct SharedExpertsRig {
  SharedExpertsRig(std::int64_t num_experts, std::int64_t ranks, bool to_few)
      : tiny([&] {
          Shape shape = Shape{}.as(Kin::kMixtral);
          shape.experts = num_experts;
          return shape;
        }()),
        ep(ranks),
        whole(model::flat_layouts(tiny.model)),
        cut(model::flat_layouts(tiny.model, 1, ep)),
        rope(tiny.config(), tiny.shape.seq, at::kDouble, at::kCPU),
        own(random("own", {layout(whole, false).size}, at::kDouble, 0.3)),
        experts(random("experts", {layout(whole, true).size}, at::kDouble, 0.3)) {
    if (to_few) router().zero_();  // ties: all tokens go to the first two experts
  }

  const model::FlatLayout& layout(const std::vector<model::FlatLayout>& all,
                                  bool of_experts) const {
    return all[static_cast<std::size_t>(kBlock) + (of_experts ? tiny.model.distinct.size() : 0)];
  }
  at::Tensor router() const {
    for (const model::FlatParam& at : layout(whole, false).params)
      if (tiny.unit(kBlock).params[static_cast<std::size_t>(at.param)].role == model::Role::kRouter)
        return own.narrow(0, at.offset, at.numel);
    ADD_FAILURE() << "no router";
    return own;
  }
  // Calls fn(a view of the whole buffer's run, a view of the rank's).
  void each_run(std::int64_t rank, const at::Tensor& all, const at::Tensor& piece,
                const std::function<void(at::Tensor, at::Tensor)>& fn) const {
    const model::FlatLayout& to = layout(cut, true);
    for (const model::FlatRun& run :
         model::flat_runs(tiny.unit(kBlock), to, {1, 0, ep, rank}, {0, to.size}))
      fn(all.narrow(0, layout(whole, true).of(run.param).offset + run.element, run.length),
         piece.narrow(0, run.at, run.length));
  }
  at::Tensor piece_of(std::int64_t rank) const {
    at::Tensor made = at::zeros({layout(cut, true).size}, at::kDouble);
    each_run(rank, experts, made,
             [](const at::Tensor& from, at::Tensor into) { into.copy_(from); });
    return made;
  }

  Ran run(std::int64_t rank, int chain, const at::Tensor& held,
          const std::vector<model::FlatLayout>& layouts, std::int64_t ranks,
          ExpertGroup group) const {
    const Shape& shape = tiny.shape;
    const model::FlatLayout& flat = layout(layouts, false);
    const UnitRunner runner(
        tiny.config(), tiny.unit(kBlock), UnitPlace(flat, &layout(layouts, true)),
        {.batch = shape.batch, .seq = shape.seq, .dtype = DType::kF64, .ep = ranks}, &rope, {}, {},
        group);
    Ran made = {.own = at::zeros_like(own), .experts = at::zeros_like(held)};
    PassInputs inputs = {.params = {own, held},
                         .grads = [&] { return UnitBuffers(made.own, made.experts); }};
    inputs.rows_met = &made.met;
    const auto of_rank = [&](const char* name) {
      return random(std::string(name) + std::to_string(rank), {shape.tokens(), shape.hidden},
                    at::kDouble);
    };
    Kept kept;
    made.out = runner.run(chain == 2 ? UnitPass::kCheckpoint : UnitPass::kForward, of_rank("input"),
                          kept, inputs);
    if (chain == 2) runner.run(UnitPass::kRecompute, {}, kept, inputs);
    made.d_input = runner.run(chain == 1 ? UnitPass::kInputGrad : UnitPass::kBackward,
                              of_rank("slope"), kept, inputs);
    if (chain == 1) runner.run(UnitPass::kWeightGrad, {}, kept, inputs);
    return made;
  }

  Tiny tiny;
  std::int64_t ep;
  std::vector<model::FlatLayout> whole, cut;
  Rope rope;
  at::Tensor own, experts;
};

void expect_same_as_alone(const SharedExpertsRig& rig, int chain) {
  std::vector<Ran> got(static_cast<std::size_t>(rig.ep));
  comm::run_local(static_cast<int>(rig.ep), [&](comm::World& world) {
    const auto comm = world.connect_all("ep", "ep", Deadline::after(Seconds{60}));
    const std::int64_t rank = comm->index();
    got[static_cast<std::size_t>(rank)] =
        rig.run(rank, chain, rig.piece_of(rank), rig.cut, rig.ep, {*comm, Seconds{60}});
  });
  at::Tensor sum = at::zeros_like(rig.experts);
  std::int64_t met = 0;
  for (std::int64_t rank = 0; rank < rig.ep; ++rank) {
    const Ran alone = rig.run(rank, chain, rig.experts, rig.whole, 1, {});
    const Ran& shared = got[static_cast<std::size_t>(rank)];
    EXPECT_LT(distance(shared.out, alone.out), 1e-13);
    EXPECT_LT(distance(shared.d_input, alone.d_input), 1e-13);
    EXPECT_LT(distance(shared.own, alone.own), 1e-13);
    sum.add_(alone.experts);
    met += shared.met.all;
  }
  EXPECT_EQ(met, rig.ep * rig.tiny.shape.tokens() * rig.tiny.config().moe.top_k);
  for (std::int64_t rank = 0; rank < rig.ep; ++rank)
    rig.each_run(rank, sum, got[static_cast<std::size_t>(rank)].experts,
                 [](const at::Tensor& want, const at::Tensor& found) {
                   if (want.abs().max().item<double>() == 0) {
                     EXPECT_EQ(found.abs().max().item<double>(), 0);
                   } else {
                     EXPECT_LT(distance(found, want), 1e-13);
                   }
                 });
}

TEST(ExpertParallel, ComputesWhatRanksWithAllExpertsDo) {
  for (const auto& [experts, ep] : {std::pair{4, 2}, {6, 3}, {4, 4}})
    for (const bool to_few : {false, true})
      for (const int chain : {0, 1, 2}) {
        SCOPED_TRACE(testing::Message()
                     << experts << " experts on " << ep << " ranks, "
                     << (to_few ? "two of them chosen" : "all chosen") << ", chain " << chain);
        expect_same_as_alone(SharedExpertsRig(experts, ep, to_few), chain);
      }
}

}  // namespace
}  // namespace lockstep::nn

// A pass of a unit while it runs, as its kernels see it: operands, memory of outputs, parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/exact_sum.h"
#include "lockstep/model/flat_layout.h"
#include "lockstep/nn/flat_view.h"
#include "lockstep/nn/rope.h"
#include "lockstep/nn/scored_attention.h"
#include "lockstep/nn/tensor_group.h"
#include "lockstep/nn/vocab_shard.h"
#include "lockstep/parts/unit_passes.h"

namespace lockstep::nn {

// Flat buffers of a unit: of its routed experts, where it has them, and of all else.
struct UnitBuffers {
  at::Tensor own, experts;
  // NOLINTNEXTLINE(google-explicit-constructor): most units have no experts
  UnitBuffers(at::Tensor of_unit = {}, at::Tensor of_experts = {})
      : own(std::move(of_unit)), experts(std::move(of_experts)) {}
};

// What backward passes of a mixture tell of its router, each token once among the ranks that share
// a sequence: sums of losses without coefficients and means, and the tokens that each expert met.
// Null: nobody asks.
struct RouterReport {
  double sequences = 1;  // of the step, in the world
  ExactSum *aux_loss = nullptr, *z_loss = nullptr;
  std::int64_t* expert_tokens = nullptr;
  at::Tensor aux_words = {}, z_words = {}, device_tokens = {};  // the same of a device
};

// What a pass reads besides what units and passes hand on to one another.
struct PassInputs {
  UnitBuffers params = {};  // W needs none
  // Those of gradients, asked for once, where a part first writes there; gaps are not touched.
  std::function<UnitBuffers()> grads = {};
  bool is_first = true;                 // writes gradients, else adds to them
  at::Tensor tokens = {}, labels = {};  // [batch, seq] of i64, all of them on every tensor rank
  double seed = 1.0;                    // what the head's gradients are multiplied by
  // Get every valid token's loss, on the group's first rank only: `loss` from kernels of the CPU,
  // ExactSum::Words from those of a device.
  ExactSum* loss = nullptr;
  at::Tensor loss_words = {};
  RouterReport router = {};
  at::Tensor router_bias = {};         // f32, by expert; undefined: the model has none
  model::RowsMet* rows_met = nullptr;  // gets what other ranks sent, where ranks share experts
  // Called before and after every wait for a collective with the number of parts behind it.
  std::function<void(int part, bool waits)> place = {};
  // Of sequences that grow, tokens that are behind these, and of a block their keys and values, as
  // long rows as kJoinKeys makes; these tokens' are written behind them.
  std::int64_t past = 0;
  at::Tensor cached_keys = {};
  bool one_row_by_vector = false;             // a product of one row may be that with a vector
  std::vector<SteadyPoint>* times = nullptr;  // gets the begin of the pass and the end of each part
};

// Where a layer's parameters lie in the unit's flat buffer.
struct LayerPlace {
  std::string_view name;          // as parts call it
  model::FlatRange weight, bias;  // bias: empty where there is none
  bool of_experts = false;        // in that of the experts
};

// What the passes of a unit have in common.
struct UnitContext {
  model::Kernels kernels;
  DType dtype;
  double norm_eps;
  Scores scores;  // of blocks, without their window
  model::Moe moe;
  double aux_loss_coeff, z_loss_coeff;
  double logit_cap;
  VocabShard vocab;
  TensorGroup group;
  ContextGroup context;
  ExpertGroup experts;
  const Rope* rope;  // of blocks
  std::vector<LayerPlace> layers;
};

// All heads of a token as one row: [batch x seq, heads x head_dim].
at::Tensor heads_in_row(const at::Tensor& x);

// Belongs to the thread that runs the pass.
class PassRun {
 public:
  PassRun(const UnitContext& context, const parts::UnitPasses& passes, const parts::Pass& pass,
          const PassInputs& given)
      : unit(context),
        inputs(given),
        sizes(passes.sizes()),
        values_(passes.values()),
        pass_(pass),
        memory_(values_.size()) {}

  const UnitContext& unit;
  const PassInputs& inputs;
  parts::Sizes sizes;  // with the chunk's rows

  // Memory by storage.
  at::Tensor& memory(parts::ValueId storage) { return memory_[static_cast<std::size_t>(storage)]; }
  void begin(const parts::Part& part, std::int64_t first_row) {
    part_ = &part;
    first_row_ = first_row;
  }

  // Of the part that runs now:
  const parts::Part& part() const { return *part_; }
  // Operand `i`: [rows, columns], or [batch, seq, heads, head_dim]. In a repeat, of the rows of all
  // tokens the chunk's.
  at::Tensor in(std::size_t i) const { return value(part_->in[i]); }
  at::Tensor out(std::size_t i) const { return value(part_->out[i]); }
  // Operand `i`, of Elem::kIndex. The host waits for a device where no part of the pass asked for
  // it before.
  const std::vector<std::int64_t>& host_numbers(std::size_t i);
  // MKL's strict product of matrices packs the whole weight at each call; for one row that takes
  // twice as long as reading it, which is all that its product with a vector does.
  bool by_vector(const at::Tensor& rows) const {
    return inputs.one_row_by_vector && rows.size(0) == 1 && rows.scalar_type() != at::kBFloat16;
  }
  // Operand `i`, to become output `i` in its own memory, or where the list gives that another, in a
  // copy.
  at::Tensor turn(std::size_t i);
  // Whether the list puts output `i` in memory that another value was taken for.
  bool shares_memory(std::size_t i) const { return pass_.storage(part_->out[i]) != part_->out[i]; }
  bool has_memory(std::size_t i) const {
    return memory_[static_cast<std::size_t>(pass_.storage(part_->out[i]))].defined();
  }
  // Output `i` has memory of its own: this.
  void put(std::size_t i, at::Tensor made);
  // The same, not yet written.
  at::Tensor make(std::size_t i);

  // Output 0 is there once a wait has been for it.
  void issued(comm::Work work) { under_way_.emplace_back(part_->out[0], std::move(work)); }
  void wait();  // for what made operand 0

  // Whose collective the part is.
  const RankGroup& group() const;

  const LayerPlace& layer() const;
  at::Tensor gain() const { return vector_at(layers_of(inputs.params), layer().weight); }
  at::Tensor bias() const { return vector_at(layers_of(inputs.params), layer().bias); }
  at::Tensor weight(std::int64_t columns) const {
    return matrix_at(layers_of(inputs.params), layer().weight, columns);
  }
  at::Tensor weight_grad(std::int64_t columns) {
    return matrix_at(grads(), layer().weight, columns);
  }
  // Of the layer's vector, over all tensor ranks.
  std::int64_t all_columns() const { return layer().weight.size() * unit.group.size(); }
  // The buffer that holds the layer's gradients.
  const at::Tensor& grads() {
    if (!grads_.own.defined()) grads_ = inputs.grads();
    return layers_of(grads_);
  }
  // Whether gradients are written, not added to what is there.
  bool writes_grads() const { return inputs.is_first && first_row_ == 0; }
  at::Tensor labels() const;  // the chunk's

 private:
  const at::Tensor& layers_of(const UnitBuffers& all) const {
    return layer().of_experts ? all.experts : all.own;
  }
  at::Tensor value(parts::ValueId id) const;
  at::ScalarType type_of(parts::Elem elem) const;

  const parts::Values& values_;
  const parts::Pass& pass_;
  const parts::Part* part_ = nullptr;
  std::int64_t first_row_ = 0;      // of a chunk
  std::vector<at::Tensor> memory_;  // by storage
  // Collectives by output; behind the memory, so that none outlives what it moves.
  std::vector<std::pair<parts::ValueId, comm::Work>> under_way_;
  UnitBuffers grads_;
  std::map<parts::ValueId, std::vector<std::int64_t>> host_numbers_;
};

}  // namespace lockstep::nn

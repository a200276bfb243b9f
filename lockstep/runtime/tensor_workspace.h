// The workspace of one rank on LibTorch tensors: its share of a model, the values of a program, and
// the passes of units and of optim that compute on them. It holds a value exactly while effects()
// says that the value is live, and no tensor besides values, rotary tables and, inside a pass, what
// the pass's list says.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/data/token_source.h"
#include "lockstep/exec/workspace.h"
#include "lockstep/model/arch.h"
#include "lockstep/model/flat_layout.h"
#include "lockstep/nn/rope.h"
#include "lockstep/nn/tensor_group.h"
#include "lockstep/nn/unit_runner.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/init.h"
#include "lockstep/parts/unit_passes.h"
#include "lockstep/program/program.h"

namespace lockstep::runtime {

// A rank among those that add up gradients of the same parameters.
struct Share {
  std::int64_t shards = 1;   // ranks that share one copy of them
  std::int64_t shard = 0;    // which of them this is
  std::int64_t replica = 0;  // which copy
  std::int64_t index() const { return replica * shards + shard; }
};

// This rank among those that share its pipeline coordinate.
struct Place {
  Coord coord;                // along the pipeline
  std::int64_t shards = 1;    // ranks that share one copy of the parameters
  std::int64_t shard = 0;     // which of them this is
  std::int64_t replica = 0;   // which copy
  model::TensorPlace tensor;  // among the ranks that share its units
  // Among those that share its sequences, a part of its shards.
  model::ContextPlace context = {};
  Share experts = {};             // of its experts
  std::int64_t sample_ranks = 1;  // places that take samples of their own
  // Among the ranks that add up their gradients,
  std::int64_t data_index() const { return replica * shards + shard; }
  // and of these among those that take samples of their own.
  std::int64_t sample_index() const { return data_index() / context.cp; }
};

struct WorkspaceSettings {
  // Its dtype is that of parameters and activations; state and gradients are of wide_type(dtype).
  model::UnitSizes unit = {};
  at::Device device = at::kCPU;
  std::uint64_t seed = 0;               // of the initial weights
  double clip = 0;                      // limit of the gradient norm; 0: none
  optim::Drawing drawing = {};          // of the initial weights
  std::vector<float> router_bias = {};  // of routers, at first; empty: zeros
  bool is_loaded =
      false;  // parameters will be set by fill_state: zeros until then, nothing is drawn
  // Before and after every wait inside a computation: how many parts of it are behind.
  std::function<void(const program::Op& op, int part, bool waits)> place = {};
  // Behind every computation: when it began, and when each of its parts ended.
  std::function<void(const program::Op& op, const std::vector<SteadyPoint>& times)> timed = {};
  // In a step's Norm, when every gradient is there and nothing is updated: adds what checks found.
  std::function<void(exec::StepSums& sums)> check = {};
};

// A parameter means its master weight where there is one.
enum class StateRole : std::uint8_t { kParameter, kFirstMoment, kSecondMoment };

// Belongs to the rank's thread. `model`, `source` and the group's communicator must outlive it.
class TensorWorkspace final : public exec::Workspace {
 public:
  // Initial weights, zero moments. Sets the thread's number of intra-op threads. `step` may differ
  // in its microbatches from the steps to come.
  // REQUIRES: groups of place.tensor.tp and place.context.cp ranks, this one at its place.
  TensorWorkspace(const model::Model& model, const program::StepShape& step, Place place,
                  const WorkspaceSettings& settings, const data::TokenSource& source,
                  nn::TensorGroup group = {}, nn::ContextGroup context = {},
                  nn::ExpertGroup experts = {});

  // For the coming step: which samples it takes, from the batch's first one on, `microbatches` a
  // rank; and the optimizer, which may treat embeddings, and a head that shares their weight,
  // otherwise.
  struct Groups {
    optim::AdamW others, embeddings;
    double bias_rate = 0;  // of selection biases
  };
  void begin_step(std::int64_t first_sample, int microbatches, const Groups& adamw);
  // The same for an evaluation, by a program that is forward_only: the first samples of
  // `validation`, which must outlive it.
  void begin_evaluation(const data::TokenSource& validation, int microbatches);
  // Every rank learns from the coming step's sums that this one wants to stop.
  void ask_to_stop() { wants_stop_ = true; }
  // Initial weights, zero moments, no updates: where what was to be loaded is not there.
  void begin_anew();
  // How many updates have been made; the optimizer's bias correction counts them.
  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }

  // Of the last step or evaluation.
  const model::RowsMetBy& rows_met() const { return rows_met_; }

  // Selection biases of routers, all experts of one unit after those of another, over all units of
  // the model, alike on every rank; empty where the model has none. Norm's counts of tokens change
  // them: fewer tokens than the mean add begin_step's rate, more take it (DeepSeek-V3, arXiv
  // 2412.19437, section 2.1.2).
  const std::vector<float>& router_bias() const { return router_bias_; }
  void set_router_bias(std::vector<float> bias);
  const at::Tensor& bias_state() const { return bias_; }  // the same, where kernels read it

  // Owned pieces, for comparing, saving and loading: elements own_range(segment) of the segment's
  // buffer, in which this tensor rank holds its share.
  const model::FlatLayout& layout(int segment) const;
  model::FlatRange own_range(int segment) const;
  Share share(int segment) const;
  // Whether of the ranks that hold the same piece this one counts it.
  bool counts(int segment) const;
  at::Tensor state(int segment, StateRole role) const;
  // Of the parameters that passes compute with: the piece, and all that this rank holds between
  // steps.
  at::Tensor working(int segment) const;
  const at::Tensor& computed_with(int segment) const;
  // The reduced gradient of the piece; there between Norm and Update.
  at::Tensor reduced_grad(int segment) const;
  // Sets the state: `fill` writes elements `range` of the segment's buffer into a tensor in host
  // memory of as many elements, of the state's type, and may leave out gaps. It is called for
  // own_range(segment), and of parameters that are not sharded for all; working parameters become
  // the rounding of their masters.
  using Fill = std::function<void(const model::FlatRange& range, const at::Tensor& into)>;
  void fill_state(int segment, StateRole role, const Fill& fill);
  // The same from the segment's buffer, of at least layout(segment).size elements.
  void load_state(int segment, StateRole role, const at::Tensor& whole);
  // Grows where any of these, or begin_anew or set_router_bias, changes the state.
  std::int64_t writes() const { return writes_; }
  // What Update of the last step does to elements `part` of a segment's buffer, on copies of them.
  void update_piece(int segment, const model::FlatRange& part, const at::Tensor& param,
                    const at::Tensor& grad, const optim::State& state) const;

  bool holds(const program::Value& value) const override { return values_.contains(value); }
  Buffer create(const program::Value& value) override;
  Buffer buffer(const program::Value& value) override;
  void drop(const program::Value& value) override;
  void move(const program::Value& from, const program::Value& to) override;
  void add(Buffer from, Buffer into) override;
  void copy(Buffer from, Buffer into) override;
  void compute(const program::Op& op, const program::Effects& effects) override;
  Buffer tied_part(int unit) override;
  Buffer replicated_part(int segment) override;
  std::vector<Buffer> copied_parts(int segment) override;
  Buffer own_part(int segment) override;
  std::int64_t valid_tokens() override;
  void set_count(std::int64_t tokens) override { count_ = tokens; }
  exec::StepSums sums() override;
  void set_sums(const exec::StepSums& sums) override;

 private:
  struct Microbatch {
    at::Tensor tokens, labels;  // [sequences, seq]; only those this coordinate needs
  };
  using Held = std::variant<at::Tensor, Microbatch, nn::Kept, optim::State>;

  template <class T>
  T take(const program::Value& value);
  template <class T>
  const T& get(const program::Value& value) const;
  const at::Tensor& param(int segment) const;
  // What of own_range(segment) is its own: all of it, but of the one state that both ends of a
  // tied weight have here, not what the other end has beside the weight.
  std::vector<model::FlatRange> state_parts(int segment) const;
  void create_state(int segment);
  void draw_state(int segment);
  at::Tensor main_grad(int segment, std::int32_t microbatch);
  // What this rank's reduced gradient of a segment holds of a range of its buffer.
  Buffer grad_part(int segment, const model::FlatRange& range);
  std::int64_t buffer_shards(int segment) const;  // what its buffers are padded for

  void load(const program::Op& op);
  void run_unit(const program::Op& op, const program::Effects& effects);
  nn::RouterReport router_of(int unit);
  std::int64_t first_expert(int unit) const;  // of the unit, among those of all
  void begin_router_bias();
  void update_router_bias(const std::vector<std::int64_t>& tokens);
  at::Tensor words_of(int row) const;
  void update(const program::Op& op);
  void look_at_noise(const program::Op& op, int segment, const at::Tensor& grads);
  bool has_device_kernels() const { return settings_.unit.kernels == model::Kernels::kDevice; }
  void add_squares(int segment, const model::FlatRange& range, const at::Tensor& grad,
                   ExactSum& sum, int row);

  bool is_head(int unit) const { return unit == step_.head(); }
  int kind_of(int unit) const { return model_.order[unit]; }
  bool shards_params() const { return step_.zero == 3; }
  std::int64_t sample_of(std::int64_t microbatch, std::int64_t row) const;
  std::int64_t whole_seq() const { return settings_.unit.seq * place_.context.cp; }
  std::int64_t elements_of(const program::Value& value) const;
  std::int64_t local_rows() const;  // of what units hand on, for a microbatch

  const model::Model& model_;
  const program::StepShape given_;
  program::StepShape step_;  // the current one's: its microbatches, and whether it is forward_only
  const Place place_;
  const WorkspaceSettings settings_;
  const data::TokenSource& source_;
  const data::TokenSource* read_from_;  // by the current step: source_, or validation samples
  const nn::TensorGroup group_;
  const nn::ContextGroup context_;
  const std::vector<model::FlatLayout> layouts_;  // Model::layout_of says whose

  std::optional<nn::Rope> rope_;
  std::map<int, nn::UnitRunner> units_;  // by distinct unit

  std::map<program::Value, Held> values_;
  ExactSum loss_, noise_squares_, aux_loss_, z_loss_;
  model::RowsMetBy rows_met_;
  std::vector<std::int64_t> expert_tokens_;  // as StepSums::expert_tokens
  std::vector<float> router_bias_;
  at::Tensor bias_;  // as bias_state()
  // Of a device's kernels the same, until the host reads them: rows of ExactSum::Words, of loss,
  // squares, noise_squares, aux_loss and z_loss; behind them expert_tokens.
  at::Tensor numbers_;
  std::int64_t local_tokens_ = 0;
  std::int64_t first_tokens_ = 0;  // those of the first microbatch
  std::int64_t count_ = 0;
  bool wants_stop_ = false;
  bool may_update_ = true;
  std::int64_t writes_ = 0;
  double grad_scale_ = 1.0;
  std::int64_t first_sample_ = 0;
  std::int64_t updates_ = 0;
  Groups adamw_;
};

}  // namespace lockstep::runtime

#include "lockstep/audit/reference/reference.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/local/local.h"
#include "lockstep/data/token_source.h"
#include "lockstep/exec/workspace.h"
#include "lockstep/hf/import.h"
#include "lockstep/model/flat_layout.h"
#include "lockstep/model/hf_names.h"
#include "lockstep/program/program.h"
#include "lockstep/runtime/tensor_workspace.h"
#include "lockstep/spec/spec.h"
#include "lockstep/tensor/as_buffer.h"
#include "lockstep/train/job.h"
#include "lockstep/train/session.h"
#include "lockstep/verify/image.h"

namespace lockstep::audit {
namespace {

constexpr Seconds kDeadline = {600};

// The dump's samples, with labels moved by some tokens.
class DumpTokens final : public data::TokenSource {
 public:
  DumpTokens(const std::vector<const Sample*>& samples, int by) : samples_(samples), by_(by) {}

  void read(std::int64_t number, std::span<std::int64_t> tokens,
            std::span<std::int64_t> labels) const override {
    const Sample& sample = *samples_.at(number % samples_.size());
    std::ranges::copy(sample.tokens, tokens.begin());
    for (std::int64_t i = 0; i < std::ssize(labels); ++i) {
      const std::int64_t from = i + by_;
      const bool is_there = from >= 0 && from < std::ssize(labels);
      labels[i] = is_there ? sample.labels[from] : data::kIgnoredLabel;
    }
  }

 private:
  const std::vector<const Sample*> samples_;
  const int by_;
};

struct Plan {
  DType dtype = DType::kF64;
  std::int64_t samples = 1;  // of a step
  std::int64_t tp = 1;
};

Result<train::Job> job_of(const model::ModelConfig& model, const Dump& dump, const Plan& plan) {
  spec::Spec spec;
  spec.model = model;
  spec.layout.zero = 0;
  spec.layout.degrees.tp = plan.tp;
  spec.batch = {.seq = dump.seq(), .global_batch = plan.samples, .microbatch = 1};
  spec.train.steps = std::ssize(dump.samples);
  spec.train.dtype = plan.dtype;
  return train::make_job(spec);  // with a learning rate of 0: weights stay as they are
}

// Where the dump's tensors lie in the flat buffers of segments.
template <class Visit>
void for_each_param(const model::Model& model, const Visit& visit) {
  std::map<std::string, std::pair<int, std::int64_t>> places;
  const std::vector<model::FlatLayout> layouts = model::flat_layouts(model);
  for (const int segment : model.segments())
    for (const model::FlatParam& place : layouts[model.layout_of(segment)].params) {
      const model::Param& param = model.unit(segment).params[place.param];
      places.try_emplace(model::name_at(param.name, model::Model::layer(model.unit_of(segment))),
                         segment, place.offset);
    }
  model::for_each_hf_tensor(model, [&](const model::HfTensor& tensor) {
    for (std::size_t i = 0; i < tensor.pieces.size(); ++i) {
      const std::string name = model::name_at(tensor.pieces[i].param->name, tensor.layer);
      const auto found = places.find(name);
      LS_CHECK(found != places.end(), name);
      visit(tensor, hf::piece_of(tensor, i), found->second.first, found->second.second);
    }
  });
}

verify::StepImage image_of(const model::Model& model, const Dump& dump, DType dtype) {
  verify::StepImage image;
  const std::vector<model::FlatLayout> layouts = model::flat_layouts(model);
  const auto wide = at::TensorOptions(at::kDouble);
  for (const int segment : model.segments())
    image.segments[segment][static_cast<std::size_t>(verify::Role::kParameter)] =
        at::zeros({layouts[model.layout_of(segment)].size}, wide);
  std::map<std::string, const Tensor*> weights;
  for (const Tensor& tensor : dump.weights) weights[tensor.name] = &tensor;
  for_each_param(model, [&](const model::HfTensor& tensor, const hf::Piece& piece, int segment,
                            std::int64_t offset) {
    // An untied head begins with the weight that it shared.
    const auto found = weights.find(tensor.name);
    const Tensor& from = found == weights.end() ? dump.weights.front() : *found->second;
    double* const into =
        image.at(segment, verify::Role::kParameter).mutable_data_ptr<double>() + offset;
    for (std::int64_t i = 0; i < piece.numel(); ++i) into[i] = from.values[piece.stored_element(i)];
  });
  // A tied head holds a copy of the embedding, at the same place of its buffer.
  const int head = model.num_units() - 1;
  const model::FlatRange tied = layouts[model.layout_of(head)].tied;
  if (layouts[model.layout_of(head)].tied_copy)
    image.at(head, verify::Role::kParameter)
        .narrow(0, tied.begin, tied.size())
        .copy_(image.at(0, verify::Role::kParameter).narrow(0, tied.begin, tied.size()));
  const auto type = tensor::scalar_type_of(wide_type(dtype));
  for (auto& [segment, roles] : image.segments)
    for (at::Tensor& role : roles)
      if (role.defined()) role = role.to(type);
  return image;
}

Gradients gradients_of(const model::Model& model, const std::map<int, at::Tensor>& buffers) {
  Gradients made;
  for_each_param(model, [&](const model::HfTensor& tensor, const hf::Piece& piece, int segment,
                            std::int64_t offset) {
    std::vector<double>& into = made[tensor.name];
    into.resize(static_cast<std::size_t>(numel(tensor.shape)));
    const double* const from = buffers.at(segment).const_data_ptr<double>() + offset;
    for (std::int64_t i = 0; i < piece.numel(); ++i) into[piece.stored_element(i)] = from[i];
  });
  return made;
}

// Steps of one rank, each from the same weights.
Result<std::vector<Step>> run(const model::ModelConfig& config, const Dump& dump,
                              const std::vector<const Sample*>& samples, const Plan& plan,
                              int by = 0) {
  const train::Job job = LS_TRY(job_of(config, dump, plan));
  const DumpTokens source(samples, by);
  const verify::StepImage weights = image_of(job.model, dump, plan.dtype);
  std::vector<Step> steps(samples.size() / plan.samples);
  comm::run_local(1, [&](comm::World& world) {
    train::Session session(job, world, "", source, kDeadline, {}, train::InitialState::kLoaded);
    for (const int segment : session.own_segments())
      session.workspace().load_state(segment, runtime::StateRole::kParameter,
                                     weights.at(segment, verify::Role::kParameter));
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto& list = job.program.list(session.coord());
      const auto report = session.step(static_cast<std::int64_t>(i), [&](int op) {
        if (list[op].kind != program::OpKind::kNorm) return;
        std::map<int, at::Tensor> buffers;
        for (const int segment : session.own_segments())
          buffers[segment] = session.workspace().reduced_grad(segment).to(at::kDouble);
        steps[i].gradients = gradients_of(job.model, buffers);
      });
      // A pipeline has both ends of a tied weight, each with the sum of both gradients.
      if (config.tied && dump.gradients.back().name == "lm_head.weight")
        steps[i].gradients["lm_head.weight"] = steps[i].gradients.at(dump.gradients.front().name);
      steps[i].loss = report.loss;
      steps[i].grad_norm = report.grad_norm;
    }
  });
  return steps;
}

std::vector<const Sample*> all_of(const Dump& dump) {
  std::vector<const Sample*> all;
  for (const Sample& sample : dump.samples) all.push_back(&sample);
  return all;
}

// Passes everything on, and looks at what tensor ranks are about to add up.
class WatchesShares final : public exec::Workspace {
 public:
  using See = std::function<void(int segment, Buffer part)>;
  WatchesShares(exec::Workspace& inner, See see) : inner_(inner), see_(std::move(see)) {}

  bool holds(const program::Value& value) const override { return inner_.holds(value); }
  Buffer create(const program::Value& value) override { return inner_.create(value); }
  Buffer buffer(const program::Value& value) override { return inner_.buffer(value); }
  void drop(const program::Value& value) override { inner_.drop(value); }
  void move(const program::Value& from, const program::Value& to) override {
    inner_.move(from, to);
  }
  void add(Buffer from, Buffer into) override { inner_.add(from, into); }
  void copy(Buffer from, Buffer into) override { inner_.copy(from, into); }
  void compute(const program::Op& op, const program::Effects& effects) override {
    inner_.compute(op, effects);
  }
  Buffer tied_part(int unit) override { return inner_.tied_part(unit); }
  Buffer replicated_part(int segment) override {
    const Buffer part = inner_.replicated_part(segment);
    see_(segment, part);
    return part;
  }
  std::vector<Buffer> copied_parts(int segment) override { return inner_.copied_parts(segment); }
  Buffer own_part(int segment) override { return inner_.own_part(segment); }
  std::int64_t valid_tokens() override { return inner_.valid_tokens(); }
  void set_count(std::int64_t tokens) override { inner_.set_count(tokens); }
  exec::StepSums sums() override { return inner_.sums(); }
  void set_sums(const exec::StepSums& sums) override { inner_.set_sums(sums); }

 private:
  exec::Workspace& inner_;
  const See see_;
};

// The parameters of a segment that tensor ranks hold alike, from their summands.
void add_shares(const model::Model& model, int segment, const model::FlatLayout& share,
                const at::Tensor& part, Gradients& into) {
  const model::FlatRange range = share.partial(/*sequence_parallel=*/true);
  const model::Unit& unit = model.unit(segment);
  const std::int64_t layer = model::Model::layer(model.unit_of(segment));
  for (const model::FlatParam& place : share.params) {
    const model::Param& param = unit.params[place.param];
    if (place.offset < range.begin || place.end() > range.end || param.shape.size() != 1) continue;
    if (param.hf.parts != 1) continue;  // stored as a part of another
    const double* const from = part.const_data_ptr<double>() + (place.offset - range.begin);
    into[model::name_at(param.hf.pattern, layer)].assign(from, from + place.numel);
  }
}

}  // namespace

Result<Step> Reference::step(DType dtype) const {
  auto steps = LS_TRY(run(dump_.model.config, dump_, all_of(dump_),
                          {dtype, static_cast<std::int64_t>(dump_.samples.size())}));
  return std::move(steps.front());
}

Result<std::vector<Step>> Reference::samples(DType dtype) const {
  std::vector<const Sample*> live;
  for (const Sample& sample : dump_.samples)
    if (sample.live() > 0) live.push_back(&sample);
  auto found = LS_TRY(run(dump_.model.config, dump_, live, {dtype}));
  std::vector<Step> all;
  auto next = found.begin();
  for (const Sample& sample : dump_.samples) {
    if (sample.live() > 0) {
      all.push_back(std::move(*next++));
      continue;
    }
    all.emplace_back();
    for (const Tensor& tensor : dump_.gradients)
      all.back().gradients[tensor.name].resize(tensor.values.size());
  }
  return all;
}

Result<std::optional<Step>> Reference::with_labels_moved(DType dtype, int by) const {
  const DumpTokens source(all_of(dump_), by);
  std::int64_t live = 0;
  for (std::int64_t i = 0; i < std::ssize(dump_.samples); ++i)
    live += source.valid_labels(i, dump_.seq());
  if (live == 0) return std::optional<Step>();
  auto steps = LS_TRY(run(dump_.model.config, dump_, all_of(dump_),
                          {dtype, static_cast<std::int64_t>(dump_.samples.size())}, by));
  return std::optional<Step>(std::move(steps.front()));
}

Result<std::optional<Step>> Reference::untied(DType dtype) const {
  model::ModelConfig config = dump_.model.config;
  if (!std::exchange(config.tied, false) || !model::problems(config).empty())
    return std::optional<Step>();
  auto steps = LS_TRY(
      run(config, dump_, all_of(dump_), {dtype, static_cast<std::int64_t>(dump_.samples.size())}));
  return std::optional<Step>(std::move(steps.front()));
}

std::vector<Gradients> Reference::shares(DType dtype, std::int64_t tp) const {
  const Plan plan = {dtype, static_cast<std::int64_t>(dump_.samples.size()), tp};
  const Result<train::Job> made = job_of(dump_.model.config, dump_, plan);
  if (!made.ok() || tp < 2) return {};
  const train::Job& job = *made;
  const DumpTokens source(all_of(dump_), 0);
  const verify::StepImage weights = image_of(job.model, dump_, dtype);
  const auto layouts = model::flat_layouts(job.model, tp);
  std::vector<Gradients> shares(static_cast<std::size_t>(tp));
  std::mutex mutex;
  const auto wrap = [&](exec::Workspace& inner, Rank rank) -> std::unique_ptr<exec::Workspace> {
    return std::make_unique<WatchesShares>(inner, [&, rank](int segment, Buffer part) {
      const at::Tensor seen = tensor::as_tensor(part).to(at::kDouble).clone();
      const std::lock_guard lock(mutex);
      add_shares(job.model, segment, layouts[job.model.layout_of(segment)], seen,
                 shares[static_cast<std::size_t>(rank.value)]);
    });
  };
  comm::run_local(static_cast<int>(tp), [&](comm::World& world) {
    train::Session session(job, world, "", source, kDeadline, wrap, train::InitialState::kLoaded);
    for (const int segment : session.own_segments())
      session.workspace().load_state(
          segment, runtime::StateRole::kParameter,
          weights.at(job.model, segment, verify::Role::kParameter, session.place().tensor));
    session.step(0);
  });
  return shares;
}

}  // namespace lockstep::audit

#include "lockstep/runtime/tensor_workspace.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/base/check.h"
#include "lockstep/nn/row_entropy.h"
#include "lockstep/optim/squares.h"
#include "lockstep/parts/op_pass.h"
#include "lockstep/tensor/as_buffer.h"
#include "lockstep/tensor/memory.h"

namespace lockstep::runtime {

using parts::UnitPass;
using program::Effects;
using program::Op;
using program::OpKind;
using program::Value;
using program::ValueKind;
using tensor::as_tensor;
using tensor::ChargeTo;

static_assert(nn::kIgnored == data::kIgnoredLabel);

namespace {
enum WordsRow : std::uint8_t { kLossWords, kSquareWords, kNoiseWords, kAuxWords, kZWords };
constexpr auto kWords = static_cast<std::int64_t>(ExactSum::kNumWords);
constexpr std::int64_t kTokens = (kZWords + 1) * kWords;  // where these begin
}  // namespace

TensorWorkspace::TensorWorkspace(const model::Model& model, const program::StepShape& step,
                                 Place place, const WorkspaceSettings& settings,
                                 const data::TokenSource& source, nn::TensorGroup group,
                                 nn::ContextGroup context, nn::ExpertGroup experts)
    : model_(model),
      given_(step),
      step_(step),
      place_(place),
      settings_(settings),
      source_(source),
      read_from_(&source),
      group_(group),
      context_(context),
      layouts_(model::flat_layouts(model, place.tensor.tp, place.tensor.ep, place.tensor.etp)) {
  LS_CHECK(step.units() == model.num_units(), "a program of ", step.units(),
           " units for a model of ", model.num_units());
  LS_CHECK((place.tensor == model::TensorPlace{group.size(), group.index(), experts.size(),
                                               experts.index(), place.tensor.etp}),
           "tensor rank ", place.tensor.coord, " of ", place.tensor.tp, " in a group of ",
           group.size(), ", expert rank ", place.tensor.expert_coord, " of ", place.tensor.ep,
           " in one of ", experts.size());
  LS_CHECK(place.context == context.place(), "context rank ", place.context.coord, " of ",
           place.context.cp, " in a group of ", context.size());
  at::set_num_threads(settings.unit.threads);
  expert_tokens_.resize(static_cast<std::size_t>(step.num_routed()));
  if (model.config.moe.router_bias) begin_router_bias();
  if (has_device_kernels()) {
    numbers_ = at::zeros({kTokens + step.num_routed()},
                         at::TensorOptions(at::kLong).device(settings.device));
  }
  for (int unit = 0; unit < step.units(); ++unit) {
    if (!step.holds(place.coord, unit)) continue;
    if (model.unit(unit).kind == model::UnitKind::kBlock && !rope_)
      rope_.emplace(model.config, settings.unit.seq, tensor::scalar_type_of(settings.unit.dtype),
                    settings.device, place.context);
    if (units_.contains(kind_of(unit))) continue;
    const auto* expert_layout = step.has_experts(unit) ? &layout(step.experts_of(unit)) : nullptr;
    units_.try_emplace(kind_of(unit), model.config, model.unit(unit),
                       nn::UnitPlace(layout(unit), expert_layout), settings.unit,
                       rope_ ? &*rope_ : nullptr, group, context, experts);
  }
  step.for_each_segment(place.coord, [&](int segment) { create_state(segment); });
}

void TensorWorkspace::create_state(int segment) {
  const Value owned = {shards_params() ? ValueKind::kParamShard : ValueKind::kParam, segment};
  create(owned);
  get<at::Tensor>(owned).zero_();
  const DType wide = wide_type(settings_.unit.dtype);
  const auto options = at::TensorOptions(tensor::scalar_type_of(wide)).device(settings_.device);
  const auto zeros = [&] { return at::zeros({own_range(segment).size()}, options); };
  optim::State state = is_head(segment) && step_.shares_state()
                           ? get<optim::State>({ValueKind::kOptimizer, 0})
                           : optim::State{zeros(), zeros(), {}};
  if (wide != settings_.unit.dtype && !state.master.defined()) state.master = zeros();
  values_[{ValueKind::kOptimizer, segment}] = std::move(state);
  if (!settings_.is_loaded) draw_state(segment);
}

void TensorWorkspace::begin_anew() {
  updates_ = 0;
  ++writes_;
  if (!router_bias_.empty()) begin_router_bias();
  step_.for_each_segment(place_.coord, [&](int segment) {
    const auto& state = get<optim::State>({ValueKind::kOptimizer, segment});
    state.first.zero_();
    state.second.zero_();
    draw_state(segment);
  });
}

// Every element once: of a piece that has a master the master, whose rounding the piece becomes; of
// a tied weight whose two ends are here, the first.
void TensorWorkspace::draw_state(int segment) {
  const model::FlatLayout& flat = layout(segment);
  const model::FlatRange own = own_range(segment);
  const model::FlatRange held =
      shards_params() ? own : model::FlatRange{0, flat.padded(buffer_shards(segment))};
  const ValueKind kind = shards_params() ? ValueKind::kParamShard : ValueKind::kParam;
  const auto part_of = [](const at::Tensor& of, const model::FlatRange& all,
                          const model::FlatRange& part) {
    return of.narrow(0, part.begin - all.begin, part.size());
  };
  // Drawn in host memory and copied, so that a device holds the same bits.
  const auto draw = [&](const model::FlatRange& range, const at::Tensor& into) {
    const at::Tensor host = into.is_cpu() ? into : at::empty_like(into, at::kCPU);
    optim::write_initial(model_, segment, flat, range, settings_.seed, host, place_.tensor,
                         settings_.drawing);
    if (!into.is_cpu()) into.copy_(host);
  };
  const at::Tensor& params = get<at::Tensor>({kind, segment});
  const model::FlatRange tied =
      flat.tied_copy && step_.shares_state() ? flat.tied : model::FlatRange{};
  const auto draw_working = [&](const model::FlatRange& range) {
    const model::FlatRange copied = common(range, tied);
    const model::FlatRange drawn = {std::max(range.begin, copied.end), range.end};
    if (copied.size() > 0)
      part_of(params, held, copied).copy_(part_of(get<at::Tensor>({kind, 0}), held, copied));
    if (drawn.size() > 0) draw(drawn, part_of(params, held, drawn));
  };
  const at::Tensor& master = get<optim::State>({ValueKind::kOptimizer, segment}).master;
  if (!master.defined()) return draw_working(held);
  draw_working({held.begin, own.begin});
  draw_working({own.end, held.end});
  for (const model::FlatRange& part : state_parts(segment)) {
    if (part.begin >= tied.end) draw(part, part_of(master, own, part));
    part_of(params, held, part).copy_(part_of(master, own, part));
  }
}

std::vector<model::FlatRange> TensorWorkspace::state_parts(int segment) const {
  const model::FlatLayout& flat = layout(segment);
  const model::FlatRange own = own_range(segment);
  if (!step_.shares_state() || flat.tied.size() == 0) return {own};
  std::vector<model::FlatRange> parts = {common(own, flat.tied)};
  if (flat.params.size() > 1)
    parts.push_back(common(own, {flat.params[1].offset, flat.params.back().end()}));
  return parts;
}

void TensorWorkspace::begin_step(std::int64_t first_sample, int microbatches, const Groups& adamw) {
  first_sample_ = first_sample;
  step_ = given_;
  step_.shape.microbatches = microbatches;
  read_from_ = &source_;
  adamw_ = adamw;
}

void TensorWorkspace::begin_evaluation(const data::TokenSource& validation, int microbatches) {
  begin_step(0, microbatches, adamw_);
  step_.forward_only = true;
  step_.noise = false;
  read_from_ = &validation;
}

const model::FlatLayout& TensorWorkspace::layout(int segment) const {
  return layouts_[model_.layout_of(segment)];
}

Share TensorWorkspace::share(int segment) const {
  if (step_.is_experts(segment)) return place_.experts;
  return {place_.shards, place_.shard, place_.replica};
}

bool TensorWorkspace::counts(int segment) const {
  return step_.zero == 0 ? share(segment).index() == 0 : share(segment).replica == 0;
}

std::int64_t TensorWorkspace::buffer_shards(int segment) const {
  return step_.zero == 0 ? 1 : share(segment).shards;
}

model::FlatRange TensorWorkspace::own_range(int segment) const {
  const std::int64_t index = step_.zero == 0 ? 0 : share(segment).shard;
  return layout(segment).shard(buffer_shards(segment), index);
}

at::Tensor TensorWorkspace::state(int segment, StateRole role) const {
  const Value optimizer = {ValueKind::kOptimizer, segment};
  const auto& held = get<optim::State>(optimizer);
  if (role == StateRole::kFirstMoment) return held.first;
  if (role == StateRole::kSecondMoment) return held.second;
  return held.master.defined() ? held.master : working(segment);
}

at::Tensor TensorWorkspace::reduced_grad(int segment) const {
  return get<at::Tensor>(final_grad(step_, segment));
}

void TensorWorkspace::fill_state(int segment, StateRole role, const Fill& fill) {
  ++writes_;
  const auto fill_into = [&](const model::FlatRange& range, const at::Tensor& target) {
    if (target.is_cpu()) return fill(range, target);
    const ChargeTo charge(tensor::process_account());
    const at::Tensor host = at::zeros_like(target, at::kCPU);
    fill(range, host);
    target.copy_(host);
  };
  const auto piece = [&](const at::Tensor& of, const model::FlatRange& part) {
    return of.narrow(0, part.begin - own_range(segment).begin, part.size());
  };
  const bool has_master = wide_type(settings_.unit.dtype) != settings_.unit.dtype;
  if (role != StateRole::kParameter || has_master || shards_params())
    for (const model::FlatRange& part : state_parts(segment)) {
      fill_into(part, piece(state(segment, role), part));
      if (role == StateRole::kParameter && has_master && shards_params())
        piece(working(segment), part).copy_(piece(state(segment, role), part));
    }
  if (role != StateRole::kParameter || shards_params()) return;
  const at::Tensor all = param(segment).narrow(0, 0, layout(segment).size);
  if (!has_master) return fill_into({0, layout(segment).size}, all);
  const ChargeTo charge(tensor::process_account());
  const at::Tensor wide =
      at::zeros({layout(segment).size},
                at::TensorOptions(tensor::scalar_type_of(wide_type(settings_.unit.dtype))));
  fill({0, layout(segment).size}, wide);
  all.copy_(wide);
}

void TensorWorkspace::load_state(int segment, StateRole role, const at::Tensor& whole) {
  fill_state(segment, role, [&](const model::FlatRange& range, const at::Tensor& into) {
    const std::int64_t length = std::min(range.end, layout(segment).size) - range.begin;
    if (length > 0) into.narrow(0, 0, length).copy_(whole.narrow(0, range.begin, length));
  });
}

template <class T>
T TensorWorkspace::take(const Value& value) {
  auto node = values_.extract(value);
  LS_CHECK(!node.empty(), to_text(value), " is not there");
  return std::get<T>(std::move(node.mapped()));
}

template <class T>
const T& TensorWorkspace::get(const Value& value) const {
  const auto found = values_.find(value);
  LS_CHECK(found != values_.end(), to_text(value), " is not there");
  return std::get<T>(found->second);
}

const at::Tensor& TensorWorkspace::param(int segment) const {
  return get<at::Tensor>({ValueKind::kParam, segment});
}

const at::Tensor& TensorWorkspace::computed_with(int segment) const {
  return get<at::Tensor>({shards_params() ? ValueKind::kParamShard : ValueKind::kParam, segment});
}

at::Tensor TensorWorkspace::working(int segment) const {
  if (shards_params()) return computed_with(segment);
  return param(segment).narrow(0, own_range(segment).begin, own_range(segment).size());
}

std::int64_t TensorWorkspace::elements_of(const Value& value) const {
  switch (value.kind) {
    case ValueKind::kParam:
    case ValueKind::kMainGrad:
      return layout(value.a).padded(buffer_shards(value.a));
    case ValueKind::kParamShard:
    case ValueKind::kReduced:
      return own_range(value.a).size();
    case ValueKind::kRecvBuffer:
      return local_rows() * model_.config.hidden;
    default:
      break;
  }
  LS_CHECK(false, to_text(value), " has no memory of its own");
  return 0;
}

std::int64_t TensorWorkspace::local_rows() const {
  return group_.local_rows(settings_.unit.batch * settings_.unit.seq);
}

Buffer TensorWorkspace::create(const Value& value) {
  const bool is_grad = value.kind == ValueKind::kMainGrad || value.kind == ValueKind::kReduced;
  const DType dtype = is_grad ? wide_type(settings_.unit.dtype) : settings_.unit.dtype;
  const auto options = at::TensorOptions(tensor::scalar_type_of(dtype)).device(settings_.device);
  at::Tensor made = value.kind == ValueKind::kRecvBuffer
                        ? at::empty({local_rows(), model_.config.hidden}, options)
                        : at::empty({elements_of(value)}, options);
  values_[value] = std::move(made);
  return buffer(value);
}

Buffer TensorWorkspace::buffer(const Value& value) {
  const auto* kept = std::get_if<nn::Kept>(&values_.at(value));
  LS_CHECK(kept == nullptr || kept->size() == 1, to_text(value), " is not one tensor");
  return tensor::as_buffer(kept != nullptr ? kept->front().second : get<at::Tensor>(value));
}

void TensorWorkspace::drop(const Value& value) {
  LS_CHECK(values_.erase(value) == 1, to_text(value), " is not there");
}

void TensorWorkspace::move(const Value& from, const Value& to) {
  auto node = values_.extract(from);
  LS_CHECK(!node.empty(), to_text(from), " is not there");
  node.key() = to;
  values_.insert(std::move(node));
}

void TensorWorkspace::add(Buffer from, Buffer into) { as_tensor(into).add_(as_tensor(from)); }

void TensorWorkspace::copy(Buffer from, Buffer into) { as_tensor(into).copy_(as_tensor(from)); }

void TensorWorkspace::compute(const Op& op, const Effects& effects) {
  switch (op.kind) {
    case OpKind::kLoad:
      return load(op);
    case OpKind::kForward:
    case OpKind::kRecompute:
    case OpKind::kBackward:
    case OpKind::kInputGrad:
    case OpKind::kWeightGrad:
      return run_unit(op, effects);
    case OpKind::kUpdate:
      return update(op);
    default:
      LS_CHECK(false, "not a computation");
  }
}

std::int64_t TensorWorkspace::sample_of(std::int64_t microbatch, std::int64_t row) const {
  const data::StepSamples dealt{first_sample_, step_.shape.microbatches, settings_.unit.batch};
  return dealt.sample(place_.sample_index(), microbatch, row);
}

void TensorWorkspace::load(const Op& op) {
  const bool is_host = settings_.device.is_cpu();
  const auto made_for = [&](bool needed) {
    if (!needed) return at::Tensor();
    const auto options = at::TensorOptions(at::kLong).pinned_memory(!is_host);
    return at::empty({settings_.unit.batch, settings_.unit.seq}, options);
  };
  Microbatch made = {made_for(step_.holds(place_.coord, 0)),
                     made_for(step_.holds(place_.coord, step_.head()))};
  const auto runs = position_runs(place_.context, settings_.unit.seq);
  std::vector<std::int64_t> tokens(whole_seq()), labels(whole_seq());
  const auto take_own = [&](const std::vector<std::int64_t>& from, const at::Tensor& part,
                            std::int64_t row) {
    if (!part.defined()) return;
    std::int64_t* const into = part.mutable_data_ptr<std::int64_t>() + row * settings_.unit.seq;
    for (const model::PositionRun& run : runs)
      std::copy_n(from.begin() + run.position, run.count, into + run.row);
  };
  for (std::int64_t row = 0; row < settings_.unit.batch; ++row) {
    read_from_->read(sample_of(op.microbatch, row), tokens, labels);
    take_own(tokens, made.tokens, row);
    take_own(labels, made.labels, row);
  }
  if (!is_host)
    for (at::Tensor* part : {&made.tokens, &made.labels})
      if (part->defined()) *part = part->to(settings_.device, at::kLong, /*non_blocking=*/true);
  values_[{ValueKind::kTokens, op.microbatch}] = std::move(made);
}

// The first context rank counts for all that share its samples.
std::int64_t TensorWorkspace::valid_tokens() {
  local_tokens_ = first_tokens_ = 0;
  if (place_.context.coord > 0) return 0;
  for (int mb = 0; mb < step_.shape.microbatches; ++mb) {
    for (std::int64_t row = 0; row < settings_.unit.batch; ++row)
      local_tokens_ += read_from_->valid_labels(sample_of(mb, row), whole_seq());
    if (mb == 0) first_tokens_ = local_tokens_;
  }
  return local_tokens_;
}

namespace {

// What the pass of a microbatch takes that an earlier one kept, and what it keeps itself.
struct Keeping {
  std::optional<ValueKind> takes, keeps;
};
Keeping keeping_of(UnitPass pass) {
  switch (pass) {
    case UnitPass::kForward:
      return {{}, ValueKind::kStash};
    case UnitPass::kCheckpoint:
      return {{}, ValueKind::kCheckpoint};
    case UnitPass::kEvaluate:
    case UnitPass::kGenerate:
      return {};
    case UnitPass::kRecompute:
      return {ValueKind::kCheckpoint, ValueKind::kStash};
    case UnitPass::kInputGrad:
      return {ValueKind::kStash, ValueKind::kWeightWork};
    case UnitPass::kWeightGrad:
      return {ValueKind::kWeightWork, {}};
    case UnitPass::kBackward:
    case UnitPass::kFirstBackward:
      return {ValueKind::kStash, {}};
  }
  return {};
}

}  // namespace

void TensorWorkspace::run_unit(const Op& op, const Effects& effects) {
  const UnitPass pass = *parts::pass_of(step_, model_.unit(op.unit), op);
  const nn::UnitRunner& unit = units_.at(kind_of(op.unit));
  const auto of_microbatch = [&](ValueKind kind) { return Value{kind, op.unit, op.microbatch}; };
  nn::PassInputs inputs;
  if (holds({ValueKind::kParam, op.unit})) {
    inputs.params.own = param(op.unit);
    if (step_.has_experts(op.unit)) inputs.params.experts = param(step_.experts_of(op.unit));
  }
  if (const Value tokens = {ValueKind::kTokens, op.microbatch}; holds(tokens)) {
    inputs.tokens = get<Microbatch>(tokens).tokens;
    inputs.labels = get<Microbatch>(tokens).labels;
  }
  inputs.is_first = step_.begins_period(op.microbatch);
  nn::UnitBuffers grads;
  inputs.grads = [&] {
    grads.own = main_grad(op.unit, op.microbatch);
    if (step_.has_experts(op.unit))
      grads.experts = main_grad(step_.experts_of(op.unit), op.microbatch);
    return grads;
  };
  inputs.seed = 1.0 / static_cast<double>(count_);
  inputs.loss = &loss_;
  if (has_device_kernels()) inputs.loss_words = words_of(kLossWords);
  if (step_.num_routed() > 0 && step_.has_experts(op.unit)) inputs.router = router_of(op.unit);
  if (bias_.defined() && step_.has_experts(op.unit))
    inputs.router_bias = bias_.narrow(0, first_expert(op.unit), step_.routed);
  if (place_.tensor.ep > 1 && step_.has_experts(op.unit))
    inputs.rows_met = &rows_met_[{op.unit, op.microbatch}];
  if (settings_.place)
    inputs.place = [&](int part, bool waits) { settings_.place(op, part, waits); };
  std::vector<SteadyPoint> times;
  if (settings_.timed) inputs.times = &times;

  const Keeping keeping = keeping_of(pass);
  nn::Kept kept;  // an embedding keeps nothing but the gradient of its output
  if (keeping.takes && holds(of_microbatch(*keeping.takes)))
    kept = take<nn::Kept>(of_microbatch(*keeping.takes));
  at::Tensor given;
  if (unit.passes().at(pass).given != parts::kNoValue) given = take<at::Tensor>(effects.kills[0]);
  at::Tensor made = unit.run(pass, std::move(given), kept, inputs);
  if (settings_.timed) settings_.timed(op, times);
  if (made.defined())
    values_[op.kind == OpKind::kForward ? of_microbatch(ValueKind::kAct)
                                        : Value{ValueKind::kGrad, op.unit - 1, op.microbatch}] =
        std::move(made);
  if (keeping.keeps && !kept.empty()) values_[of_microbatch(*keeping.keeps)] = std::move(kept);
  inputs.tokens.reset();
  inputs.labels.reset();
  for (const Value& killed : effects.kills)
    if (killed.kind == ValueKind::kTokens) drop(killed);
  if (grads.own.defined()) look_at_noise(op, op.unit, grads.own);
  if (grads.experts.defined()) look_at_noise(op, step_.experts_of(op.unit), grads.experts);
}

std::int64_t TensorWorkspace::first_expert(int unit) const {
  return std::count(step_.experts.begin(), step_.experts.begin() + unit, true) * step_.routed;
}

void TensorWorkspace::begin_router_bias() {
  std::vector<float> bias = settings_.router_bias;
  bias.resize(static_cast<std::size_t>(step_.all_experts()));
  set_router_bias(std::move(bias));
}

void TensorWorkspace::set_router_bias(std::vector<float> bias) {
  router_bias_ = std::move(bias);
  ++writes_;
  const std::int64_t experts = std::ssize(router_bias_);
  const auto options = at::TensorOptions(at::kFloat);
  if (!has_device_kernels()) {
    bias_ = at::from_blob(router_bias_.data(), {experts}, options);
    return;
  }
  if (!bias_.defined()) bias_ = at::empty({experts}, options.device(settings_.device));
  // From pinned memory the host need not wait for a copy.
  const at::Tensor host = at::empty({experts}, options.pinned_memory(!settings_.device.is_cpu()));
  std::ranges::copy(router_bias_, host.mutable_data_ptr<float>());
  bias_.copy_(host, /*non_blocking=*/true);
}

void TensorWorkspace::update_router_bias(const std::vector<std::int64_t>& tokens) {
  std::vector<float> bias = router_bias_;
  for (std::size_t first = 0; first < tokens.size(); first += step_.routed) {
    const auto* const own = tokens.data() + first;
    const std::int64_t all = std::accumulate(own, own + step_.routed, std::int64_t{0});
    for (std::int64_t e = 0; e < step_.routed; ++e) {
      const std::int64_t below = all - own[e] * step_.routed;  // the mean, times as many experts
      const double sign = below > 0 ? 1.0 : below < 0 ? -1.0 : 0.0;
      bias[first + e] = static_cast<float>(bias[first + e] + sign * adamw_.bias_rate);
    }
  }
  set_router_bias(std::move(bias));
}

nn::RouterReport TensorWorkspace::router_of(int unit) {
  nn::RouterReport router;
  router.sequences =
      static_cast<double>(place_.sample_ranks * step_.shape.microbatches * settings_.unit.batch);
  const std::int64_t before = first_expert(unit);
  router.aux_loss = &aux_loss_;
  router.z_loss = &z_loss_;
  router.expert_tokens = expert_tokens_.data() + before;
  if (!has_device_kernels()) return router;
  router.aux_words = words_of(kAuxWords);
  router.z_words = words_of(kZWords);
  router.device_tokens = numbers_.narrow(0, kTokens + before, step_.routed);
  return router;
}

// The buffer that the period's gradients add up in; the first of them writes every element but the
// gaps.
at::Tensor TensorWorkspace::main_grad(int segment, std::int32_t microbatch) {
  const Value value = {ValueKind::kMainGrad, segment, step_.period_of(microbatch)};
  if (step_.begins_period(microbatch)) {
    create(value);
    for (const model::FlatRange& gap : layout(segment).gaps(buffer_shards(segment)))
      get<at::Tensor>(value).narrow(0, gap.begin, gap.size()).zero_();
  }
  return get<at::Tensor>(value);
}

// The gradient of the step's first microbatch stands alone until the next one is added or data
// ranks add theirs. Summands of tensor and context ranks are added up for as long as it takes to
// look at them.
void TensorWorkspace::look_at_noise(const Op& op, int segment, const at::Tensor& grads) {
  if (!step_.is_noise(op) || place_.sample_index() != 0) return;
  const model::FlatLayout& flat = layout(segment);
  const bool shares = context_.size() > 1;
  std::vector<std::pair<at::Tensor, at::Tensor>> summed;  // and what was there
  const auto keep = [&](const at::Tensor& part) { summed.emplace_back(part, part.clone()); };
  const auto sum = [&](const model::FlatRange& range, auto add_up) {
    const at::Tensor part = grads.narrow(0, range.begin, range.size());
    if (range.size() == 0) return;
    if (!shares) keep(part);
    (group_.*add_up)(part).wait();
  };
  if (shares) keep(grads);
  if (step_.is_partial(segment)) {
    sum(flat.partial(group_.shares_rows()), &nn::TensorGroup::sum);
    for (const model::FlatRange& range : flat.copied) sum(range, &nn::TensorGroup::sum_copies);
  }
  if (shares) context_.sum(grads).wait();
  if (place_.data_index() == 0)
    add_squares(segment, {0, grads.numel()}, grads, noise_squares_, kNoiseWords);
  for (const auto& [part, kept] : summed) part.copy_(kept);
}

Buffer TensorWorkspace::grad_part(int segment, const model::FlatRange& range) {
  const model::FlatRange own = own_range(segment), part = common(own, range);
  return buffer(final_grad(step_, segment)).slice(part.begin - own.begin, part.size());
}

Buffer TensorWorkspace::tied_part(int unit) { return grad_part(unit, layout(unit).tied); }

Buffer TensorWorkspace::replicated_part(int segment) {
  return grad_part(segment, layout(segment).partial(group_.shares_rows()));
}

std::vector<Buffer> TensorWorkspace::copied_parts(int segment) {
  std::vector<Buffer> parts;
  for (const model::FlatRange& range : layout(segment).copied)
    parts.push_back(grad_part(segment, range));
  return parts;
}

Buffer TensorWorkspace::own_part(int segment) {
  return buffer({ValueKind::kParam, segment})
      .slice(own_range(segment).begin, own_range(segment).size());
}

void TensorWorkspace::add_squares(int segment, const model::FlatRange& range,
                                  const at::Tensor& grad, ExactSum& sum, int row) {
  if (has_device_kernels())
    optim::add_squares(layout(segment), range, grad, words_of(row), place_.tensor);
  else
    optim::add_squares(layout(segment), range, grad, sum, place_.tensor);
}

at::Tensor TensorWorkspace::words_of(int row) const {
  return numbers_.narrow(0, row * kWords, kWords);
}

exec::StepSums TensorWorkspace::sums() {
  exec::StepSums sums;
  sums.tokens = place_.tensor.coord == 0 ? local_tokens_ : 0;
  sums.stops = wants_stop_ ? 1 : 0;
  if (place_.data_index() == 0 && place_.tensor.coord == 0) sums.noise_tokens = first_tokens_;
  if (!step_.forward_only)
    step_.for_each_segment(place_.coord, [&](int segment) {
      if (counts(segment))
        add_squares(segment, own_range(segment), reduced_grad(segment), sums.squares, kSquareWords);
    });
  sums.loss = std::exchange(loss_, {});  // of a tensor group, the first rank has it
  sums.noise_squares = std::exchange(noise_squares_, {});
  if (step_.num_routed() > 0) {
    sums.aux_loss = std::exchange(aux_loss_, {});
    sums.z_loss = std::exchange(z_loss_, {});
    sums.expert_tokens = std::exchange(
        expert_tokens_, std::vector<std::int64_t>(static_cast<std::size_t>(step_.num_routed())));
  }
  if (!has_device_kernels()) {
    if (settings_.check && !step_.forward_only) settings_.check(sums);
    return sums;
  }
  const at::Tensor host = numbers_.cpu();  // here the host waits for the step's gradients
  const auto read = [&](int row) {
    ExactSum::Words words;
    std::copy_n(host.const_data_ptr<std::int64_t>() + row * std::ssize(words), words.size(),
                words.begin());
    return ExactSum::from_words(words);
  };
  sums.loss = read(kLossWords);
  sums.squares = read(kSquareWords);
  sums.noise_squares = read(kNoiseWords);
  if (step_.num_routed() > 0) {
    sums.aux_loss = read(kAuxWords);
    sums.z_loss = read(kZWords);
    const auto* tokens = host.const_data_ptr<std::int64_t>() + kTokens;
    sums.expert_tokens.assign(tokens, tokens + step_.num_routed());
  }
  numbers_.zero_();  // `host` may be the same
  return sums;
}

void TensorWorkspace::set_sums(const exec::StepSums& sums) {
  const double norm = std::sqrt(sums.squares.result());
  may_update_ = std::isfinite(norm) && std::isfinite(sums.loss.result()) && sums.is_sound();
  grad_scale_ = settings_.clip > 0 && norm > settings_.clip ? settings_.clip / norm : 1.0;
  if (!may_update_ || step_.forward_only) return;
  ++updates_;
  if (!router_bias_.empty()) update_router_bias(sums.expert_tokens);
}

// Every rank sees the same sums, so either all of them update or none does.
void TensorWorkspace::update(const Op& op) {
  const auto grad = take<at::Tensor>(final_grad(step_, op.unit));
  if (!may_update_) return;
  const model::FlatLayout& flat = layout(op.unit);
  const model::FlatRange own = own_range(op.unit);
  const auto& state = get<optim::State>({ValueKind::kOptimizer, op.unit});
  for (const model::FlatRange& part : state_parts(op.unit)) {
    const auto piece = [&](const at::Tensor& of) {
      return of.defined() ? of.narrow(0, part.begin - own.begin, part.size()) : of;
    };
    if (flat.tied_copy && step_.shares_state() && part.end <= flat.tied.end)
      piece(working(op.unit)).copy_(piece(working(0)));
    else
      update_piece(op.unit, part, piece(working(op.unit)), piece(grad),
                   {piece(state.first), piece(state.second), piece(state.master)});
  }
}

void TensorWorkspace::update_piece(int segment, const model::FlatRange& part,
                                   const at::Tensor& param, const at::Tensor& grad,
                                   const optim::State& state) const {
  const model::FlatLayout& flat = layout(segment);
  // All that decays in the first unit is an embedding, and all that decays beside a tied weight is
  // it.
  const bool is_embedding = segment == 0 || flat.tied.size() > 0;
  optim::update(is_embedding ? adamw_.embeddings : adamw_.others, updates_, flat, part, param, grad,
                state, grad_scale_);
}

}  // namespace lockstep::runtime

#include "lockstep/program/effects.h"

#include "lockstep/program/op_table.h"

namespace lockstep::program {
namespace {

Value act(int unit, int mb) { return {ValueKind::kAct, unit, mb}; }
Value grad(int unit, int mb) { return {ValueKind::kGrad, unit, mb}; }
Value tokens(int mb) { return {ValueKind::kTokens, mb}; }
Value stash(int unit, int mb) { return {ValueKind::kStash, unit, mb}; }
Value checkpoint(int unit, int mb) { return {ValueKind::kCheckpoint, unit, mb}; }
Value weight_work(int unit, int mb) { return {ValueKind::kWeightWork, unit, mb}; }
Value param(int segment) { return {ValueKind::kParam, segment}; }
Value owned_param(const StepShape& step, int segment) {
  return {step.zero == 3 ? ValueKind::kParamShard : ValueKind::kParam, segment};
}
constexpr Value kCountValue = {ValueKind::kCount};
constexpr Value kLossValue = {ValueKind::kLoss};
constexpr Value kNormValue = {ValueKind::kNorm};
constexpr Value kNoiseValue = {ValueKind::kNoise};

// Writes the effects of one op; one function per kind.
class Row {
 public:
  // REQUIRES: `out` is clear.
  Row(const Program& program, Coord coord, const Op& op, Effects& out)
      : program_(program), step_(program.step), coord_(coord), op_(op), out_(out) {}

  void fill() {
    out_.group = op_.group;
    out_.lane = op_row(op_.kind).lane;
    switch (op_.kind) {
      case OpKind::kLoad:
        return load();
      case OpKind::kCount:
        return count();
      case OpKind::kForward:
        return forward();
      case OpKind::kRecompute:
        return recompute();
      case OpKind::kBackward:
        return backward();
      case OpKind::kInputGrad:
        return input_grad();
      case OpKind::kWeightGrad:
        return weight_grad();
      case OpKind::kSend:
        return send();
      case OpKind::kPostRecv:
        return post_recv();
      case OpKind::kGather:
        return gather();
      case OpKind::kFree:
        return free();
      case OpKind::kReduce:
        return reduce();
      case OpKind::kReduceAcross:
        return reduce_across();
      case OpKind::kReduceReplicated:
        return reduce_replicated();
      case OpKind::kReduceTied:
        return reduce_tied();
      case OpKind::kNorm:
        return norm();
      case OpKind::kUpdate:
        return update();
      case OpKind::kAllGatherUpdated:
        return all_gather_updated();
      case OpKind::kWait:
        return wait();
    }
  }

 private:
  bool is_embed() const { return op_.unit == 0; }
  bool is_head() const { return op_.unit == step_.head(); }

  // What arrives at the unit from the unit before it, or from the one after it.
  Value input() const {
    const int transfer = program_.find_transfer(false, op_.unit - 1, op_.microbatch);
    if (transfer >= 0) return {ValueKind::kRecvBuffer, transfer};
    return act(op_.unit - 1, op_.microbatch);
  }
  Value output_grad() const {
    const int transfer = program_.find_transfer(true, op_.unit, op_.microbatch);
    if (transfer >= 0) return {ValueKind::kRecvBuffer, transfer};
    return grad(op_.unit, op_.microbatch);
  }
  Value main_grad() const { return {ValueKind::kMainGrad, op_.unit, op_.period}; }
  // All parameters of the unit.
  void read_params() {
    step_.for_each_segment(op_.unit, [&](int segment) { out_.reads.push_back(param(segment)); });
  }
  void take(Value arrived) {
    out_.reads = {arrived};
    out_.kills = {arrived};
  }
  Value reduced() const { return {ValueKind::kReduced, op_.unit, op_.period}; }

  void load() { out_.defines = {tokens(op_.microbatch)}; }

  void count() { out_.defines = {kCountValue}; }

  void forward() {
    const int mb = op_.microbatch;
    if (is_embed()) {
      out_.reads = {param(0), tokens(mb)};
      out_.defines = {act(0, mb)};
      if (step_.forward_only && !step_.holds(coord_, step_.head())) out_.kills = {tokens(mb)};
      return;
    }
    take(input());
    if (is_head()) return forward_head();
    read_params();
    out_.defines = {act(op_.unit, mb)};
    if (!step_.forward_only)
      out_.defines.push_back(step_.recomputes(op_.unit) ? checkpoint(op_.unit, mb)
                                                        : stash(op_.unit, mb));
  }

  // In training the head's forward only takes its input over: its loss is computed with the
  // gradient, chunk by chunk, so that logits are made once and never kept.
  void forward_head() {
    const int mb = op_.microbatch;
    if (!step_.forward_only) {
      out_.defines = {stash(op_.unit, mb)};
      return;
    }
    out_.reads.push_back(param(op_.unit));
    out_.reads.push_back(tokens(mb));
    out_.mutates = {kLossValue};
    out_.kills.push_back(tokens(mb));
  }

  void recompute() {
    read_params();
    out_.reads.push_back(checkpoint(op_.unit, op_.microbatch));
    out_.defines = {stash(op_.unit, op_.microbatch)};
    out_.kills = {checkpoint(op_.unit, op_.microbatch)};
  }

  void input_grad() {
    take(output_grad());
    out_.defines = {weight_work(op_.unit, op_.microbatch)};
    if (!is_embed()) use_stash_up();
  }

  void use_stash_up() {
    read_params();
    out_.reads.push_back(stash(op_.unit, op_.microbatch));
    out_.kills.push_back(stash(op_.unit, op_.microbatch));
    out_.defines.push_back(grad(op_.unit - 1, op_.microbatch));
  }

  void weight_grad() {
    out_.reads.push_back(weight_work(op_.unit, op_.microbatch));
    out_.kills.push_back(weight_work(op_.unit, op_.microbatch));
    if (is_embed()) use_tokens_up();
    add_to_main_grad();
  }

  // The period's first gradient defines the sum, later ones add to it.
  void add_to_main_grad() {
    auto& changed = step_.begins_period(op_.microbatch) ? out_.defines : out_.mutates;
    step_.for_each_segment(op_.unit, [&](int segment) {
      changed.push_back({ValueKind::kMainGrad, segment, step_.period_of(op_.microbatch)});
    });
    if (step_.is_noise(op_)) out_.mutates.push_back(kNoiseValue);
  }

  void use_tokens_up() {
    out_.reads.push_back(tokens(op_.microbatch));
    out_.kills.push_back(tokens(op_.microbatch));
  }

  void backward() {
    if (is_head()) return backward_head();
    take(output_grad());
    if (is_embed())
      use_tokens_up();
    else
      use_stash_up();
    add_to_main_grad();
  }

  void backward_head() {
    const int mb = op_.microbatch;
    out_.reads = {param(op_.unit), stash(op_.unit, mb), tokens(mb), kCountValue};
    out_.kills = {stash(op_.unit, mb)};
    if (!step_.holds(coord_, 0)) out_.kills.push_back(tokens(mb));
    out_.defines = {grad(op_.unit - 1, mb)};
    out_.mutates = {kLossValue};
    add_to_main_grad();
  }

  void send() {
    const Transfer& transfer = program_.transfers[op_.transfer];
    const Value moved = transfer.is_grad ? grad(transfer.unit, transfer.microbatch)
                                         : act(transfer.unit, transfer.microbatch);
    out_.reads = {moved};
    out_.defines = {{ValueKind::kSendBuffer, op_.transfer}};
    out_.kills = {moved};
  }

  void post_recv() { out_.defines = {{ValueKind::kRecvBuffer, op_.transfer}}; }

  void gather() {
    out_.reads = {{ValueKind::kParamShard, op_.unit}};
    out_.defines = {param(op_.unit)};
  }

  void free() { out_.kills = {param(op_.unit)}; }

  void all_gather_updated() { out_.mutates = {param(op_.unit)}; }

  void reduce() {
    if (step_.zero == 0) {
      out_.mutates = {main_grad()};
      return;
    }
    out_.reads = {main_grad()};
    out_.defines = {reduced()};
  }

  void reduce_across() { out_.mutates = {reduced()}; }

  void reduce_replicated() { out_.mutates = {final_grad(step_, op_.unit)}; }

  void reduce_tied() {
    for (int unit : {0, step_.head()})
      if (step_.holds(coord_, unit)) out_.mutates.push_back(final_grad(step_, unit));
  }

  void norm() {
    if (!step_.forward_only)
      step_.for_each_segment(
          coord_, [&](int segment) { out_.reads.push_back(final_grad(step_, segment)); });
    if (step_.holds(coord_, step_.head())) out_.reads.push_back(kLossValue);
    if (step_.noise) out_.reads.push_back(kNoiseValue);
    out_.defines = {kNormValue};
  }

  void update() {
    out_.reads = {kNormValue, final_grad(step_, op_.unit)};
    out_.mutates = {{ValueKind::kOptimizer, op_.unit}, owned_param(step_, op_.unit)};
    out_.kills = {final_grad(step_, op_.unit)};
    if (op_.unit == step_.head() && step_.shares_state())
      out_.reads.insert(out_.reads.end(), {{ValueKind::kOptimizer, 0}, owned_param(step_, 0)});
  }

  // The second half of an asynchronous op.
  void wait() {
    const Op& target = program_.list(coord_)[op_.target];
    Row whole(program_, coord_, target, out_);
    whole.fill();
    out_.reads.clear();
    out_.mutates.clear();
    out_.kills.clear();
    if (target.kind == OpKind::kSend) out_.kills.swap(out_.defines);
    out_.defines.clear();
    if (target.kind == OpKind::kReduce) whole.finish_reduce();
    if (target.kind == OpKind::kReduceAcross) whole.accumulate(whole.reduced());
  }

  void finish_reduce() {
    if (step_.zero == 0) return accumulate(main_grad());
    out_.kills = {main_grad()};
    if (!step_.replicas) accumulate(reduced());
  }

  // The first period's sum becomes the step's, later ones are added to it.
  void accumulate(Value part) {
    out_.reads.push_back(part);
    out_.kills.push_back(part);
    (op_.period == 0 ? out_.defines : out_.mutates).push_back(final_grad(step_, op_.unit));
  }

  const Program& program_;
  const StepShape& step_;
  Coord coord_;
  const Op& op_;
  Effects& out_;
};

constexpr std::string_view kValueNames[] = {"tokens",    "act",         "checkpoint",  "stash",
                                            "grad",      "weight_work", "param",       "shard",
                                            "main_grad", "reduced",     "acc_grad",    "grad_shard",
                                            "optimizer", "send_buffer", "recv_buffer", "count",
                                            "loss",      "norm",        "noise"};

}  // namespace

void Effects::clear() {
  for (auto* values : {&reads, &defines, &mutates, &kills}) values->clear();
  lane = Lane::kHost;
  group = CommGroup::kNone;
}

void write_effects(const Program& program, Coord coord, const Op& op, Effects& out) {
  out.clear();
  Row(program, coord, op, out).fill();
}

Effects effects(const Program& program, Coord coord, const Op& op) {
  Effects out;
  write_effects(program, coord, op, out);
  return out;
}

bool is_async(OpKind kind) { return op_row(kind).is_async; }

std::vector<Value> persistent(const StepShape& step, Coord coord) {
  std::vector<Value> values;
  step.for_each_segment(coord, [&](int segment) {
    values.push_back(owned_param(step, segment));
    values.push_back({ValueKind::kOptimizer, segment});
  });
  if (step.holds(coord, step.head())) values.push_back(kLossValue);
  if (step.noise) values.push_back(kNoiseValue);
  return values;
}

Value final_grad(const StepShape& step, int segment) {
  return {step.zero == 0 ? ValueKind::kAccGrad : ValueKind::kGradShard, segment};
}

std::string to_text(const Value& value) {
  std::string text(kValueNames[static_cast<std::size_t>(value.kind)]);
  if (value.a < 0) return text;
  text += "(" + std::to_string(value.a);
  if (value.b >= 0) text += "," + std::to_string(value.b);
  return text + ")";
}

}  // namespace lockstep::program

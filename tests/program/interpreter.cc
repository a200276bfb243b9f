#include "tests/program/interpreter.h"

#include <initializer_list>
#include <map>
#include <tuple>
#include <utility>

namespace lockstep::program {
namespace {

enum class Sign : std::uint8_t {
  kWeights,   // that a segment begins the step with
  kBoth,      // a unit's own and its experts'
  kGathered,  // from shards
  kTokens,
  kCount,
  kOutput,     // F
  kInputGrad,  // I
  kWeightGrad,
  kLoss,
  kSum,
  kReduced,
  kAcross,
  kReplicated,
  kTied,
  kNorm,
  kUpdated,
};

Formula formula(Sign sign, std::initializer_list<Formula> parts) {
  Formula hash = static_cast<Formula>(sign) + 1;
  for (const Formula part : parts) {
    hash = (hash ^ part) * 0x9E3779B97F4A7C15ULL;
    hash = (hash ^ hash >> 29) * 0xBF58476D1CE4E5B9ULL;
    hash ^= hash >> 32;
  }
  return hash;
}

Formula number(int value) { return static_cast<Formula>(value); }
Formula number(CommGroup group) { return static_cast<Formula>(group); }

// A unit, then its experts, which are numbered behind all units.
std::vector<int> segments_of(const StepShape& step, int unit) {
  if (step.experts.empty() || !step.experts[static_cast<std::size_t>(unit)]) return {unit};
  return {unit, step.units() + unit};
}
std::vector<int> all_segments(const StepShape& step) {
  std::vector<int> all;
  for (int unit = 0; unit < step.units(); ++unit)
    for (const int segment : segments_of(step, unit)) all.push_back(segment);
  return all;
}

class Reference {
 public:
  explicit Reference(const StepShape& step) : step_(step) {}

  Outcome run() {
    for (int mb = 0; mb < step_.shape.microbatches; ++mb) run_microbatch(mb);
    Outcome out;
    if (step_.forward_only) {
      out.norm = formula(Sign::kNorm, {everyone(), loss_});
      for (const int segment : all_segments(step_))
        out.weights.push_back(step_.zero == 3 ? owned(segment) : weights(segment));
      return out;
    }
    std::map<int, Formula> grads;
    for (const int segment : all_segments(step_)) grads[segment] = reduced(segment);
    const int head = step_.head();
    if (step_.tied)
      grads[0] = grads[head] =
          formula(Sign::kTied, {number(CommGroup::kTied), grads[0], grads[head]});
    out.norm = formula(Sign::kNorm, {everyone(), loss_});
    for (const int segment : all_segments(step_))
      out.norm = formula(Sign::kNorm, {out.norm, grads[segment]});
    for (const int segment : all_segments(step_)) {
      const Formula before = step_.zero == 3 ? owned(segment) : weights(segment);
      out.weights.push_back(formula(Sign::kUpdated, {before, grads[segment], out.norm}));
    }
    return out;
  }

 private:
  // Each rank of the world brings its part to the norm.
  Formula everyone() const {
    return number(step_.tensor_parallel ? CommGroup::kDataTensorPipeline
                                        : CommGroup::kDataThenPipeline);
  }
  static Formula owned(int segment) { return formula(Sign::kWeights, {number(segment)}); }
  bool is_experts(int segment) const { return segment >= step_.units(); }
  Formula weights(int segment) const {
    if (step_.zero == 0) return owned(segment);
    const CommGroup group = is_experts(segment) ? CommGroup::kExpertShard : CommGroup::kShard;
    return formula(Sign::kGathered, {number(group), owned(segment)});
  }
  // Of all segments.
  Formula unit_weights(int unit) const {
    const std::vector<int> segments = segments_of(step_, unit);
    if (segments.size() == 1) return weights(unit);
    return formula(Sign::kBoth, {weights(segments[0]), weights(segments[1])});
  }

  void run_microbatch(int mb) {
    const Formula tokens = formula(Sign::kTokens, {number(mb)});
    const Formula count = formula(Sign::kCount, {number(CommGroup::kData)});
    std::vector<Formula> inputs = {tokens};
    for (int unit = 0; unit < step_.head(); ++unit)
      inputs.push_back(formula(Sign::kOutput, {unit_weights(unit), inputs.back()}));
    const Formula head = weights(step_.head());
    loss_ += formula(Sign::kLoss, {head, inputs.back(), tokens});
    if (step_.forward_only) return;
    Formula grad = formula(Sign::kInputGrad, {head, inputs.back(), tokens, count});
    add(step_.head(), mb, formula(Sign::kWeightGrad, {head, inputs.back(), tokens, count}));
    for (int unit = step_.head() - 1; unit > 0; --unit) {
      const Formula input = inputs[static_cast<std::size_t>(unit)];
      add(unit, mb, formula(Sign::kWeightGrad, {input, grad}));
      grad = formula(Sign::kInputGrad, {unit_weights(unit), input, grad});
    }
    add(0, mb, formula(Sign::kWeightGrad, {tokens, grad}));
  }

  void add(int unit, int mb, Formula grad) {
    for (const int segment : segments_of(step_, unit)) {
      const auto [sum, is_first] = sums_.emplace(std::pair(segment, step_.period_of(mb)), grad);
      if (!is_first) sum->second = formula(Sign::kSum, {sum->second, grad});
    }
  }

  Formula reduced(int segment) const {
    const bool experts = is_experts(segment);
    const CommGroup data = experts ? CommGroup::kExpertData : CommGroup::kData;
    const CommGroup shard = experts ? CommGroup::kExpertShard : CommGroup::kShard;
    const CommGroup across = experts ? CommGroup::kExpertReplicate : CommGroup::kReplicate;
    Formula all = 0;
    for (int period = 0; period < step_.periods(); ++period) {
      const CommGroup group = step_.zero == 0 ? data : shard;
      Formula part = formula(Sign::kReduced, {number(group), sums_.at({segment, period})});
      if (step_.zero > 0 && step_.replicas) part = formula(Sign::kAcross, {number(across), part});
      all = period == 0 ? part : formula(Sign::kSum, {all, part});
    }
    const bool is_partial =
        !experts && !step_.partial.empty() && step_.partial[static_cast<std::size_t>(segment)];
    return is_partial ? formula(Sign::kReplicated, {number(CommGroup::kTensor), all}) : all;
  }

  const StepShape& step_;
  std::map<std::pair<int, int>, Formula> sums_;  // by segment and period
  Formula loss_ = 0;                             // an exact sum, whatever the order
};

class Interpreter {
 public:
  explicit Interpreter(const Program& program) : program_(program), step_(program.step) {
    for (std::size_t c = 0; c < program.lists.size(); ++c) {
      ranks_.push_back({.coord = {static_cast<std::int32_t>(c)}});
      for (const int segment : all_segments(step_))
        if (step_.coord_of(segment % step_.units()) == ranks_[c].coord)
          ranks_[c].values[owned(segment)] = initial(segment);
    }
  }

  Outcome run() {
    for (bool has_moved = true; has_moved && out_.fault.empty();) {
      has_moved = false;
      for (Rank& rank : ranks_)
        while (out_.fault.empty() && !has_ended(rank) && advance(rank)) has_moved = true;
      has_moved |= join();
    }
    for (const Rank& rank : ranks_)
      if (!has_ended(rank)) fail("stuck");
    for (const int segment : all_segments(step_))
      if (out_.fault.empty()) out_.weights.push_back(take(holder(segment), owned(segment)));
    return std::move(out_);
  }

 private:
  // What is kept: w weights in use, o the owned piece under ZeRO-3, t tokens, n count, y output,
  // Y received output, g gradient, G received gradient, c checkpoint, x input kept, k work for W,
  // m sum over a period, r reduced, a sum over periods, N norm.
  using Key = std::tuple<char, int, int>;
  struct Rank {
    Coord coord;
    std::size_t next = 0;
    std::map<Key, Formula> values = {};
    std::map<std::size_t, Formula> in_flight = {};  // by place: what it works on, or which copy
  };

  static Formula initial(int segment) { return formula(Sign::kWeights, {number(segment)}); }
  Key owned(int segment) const { return {step_.zero == 3 ? 'o' : 'w', segment, 0}; }
  Rank& holder(int segment) {
    return ranks_[static_cast<std::size_t>(step_.coord_of(segment % step_.units()).value)];
  }
  Formula weights(Rank& rank, int unit) {
    const std::vector<int> segments = segments_of(step_, unit);
    if (segments.size() == 1) return get(rank, {'w', unit, 0});
    return formula(Sign::kBoth,
                   {get(rank, {'w', segments[0], 0}), get(rank, {'w', segments[1], 0})});
  }
  bool has_ended(const Rank& rank) const { return rank.next == program_.list(rank.coord).size(); }
  const Op& at(const Rank& rank) const { return program_.list(rank.coord)[rank.next]; }
  bool is_at(const Rank& rank, OpKind kind) const {
    return !has_ended(rank) && at(rank).kind == kind;
  }

  void fail(const std::string& fault) {
    if (out_.fault.empty()) out_.fault = fault;
  }
  Formula get(Rank& rank, const Key& key) {
    const auto found = rank.values.find(key);
    if (found != rank.values.end()) return found->second;
    fail(std::string("no ") + std::get<0>(key));
    return 0;
  }
  Formula take(Rank& rank, const Key& key) {
    const Formula value = get(rank, key);
    rank.values.erase(key);
    return value;
  }

  // One op; false when it must wait for another rank.
  bool advance(Rank& rank) {
    const Op& op = at(rank);
    if (op.kind == OpKind::kNorm || op.kind == OpKind::kReduceTied) return false;
    if (op.kind == OpKind::kWait && !wait(rank, static_cast<std::size_t>(op.target))) return false;
    if (op.kind <= OpKind::kWeightGrad)
      compute(rank, op);
    else if (op.kind != OpKind::kWait)
      issue(rank, op);
    ++rank.next;
    return true;
  }

  void compute(Rank& rank, const Op& op) {
    const int unit = op.unit, mb = op.microbatch;
    switch (op.kind) {
      case OpKind::kLoad:
        rank.values[{'t', mb, 0}] = formula(Sign::kTokens, {number(mb)});
        return;
      case OpKind::kCount:
        rank.values[{'n', 0, 0}] = formula(Sign::kCount, {number(op.group)});
        return;
      case OpKind::kForward:
        return forward(rank, unit, mb);
      case OpKind::kRecompute:
        weights(rank, unit);
        rank.values[{'x', unit, mb}] = take(rank, {'c', unit, mb});
        return;
      case OpKind::kInputGrad:
        return input_grad(rank, unit, mb);
      case OpKind::kWeightGrad:
        return weight_grad(rank, unit, mb);
      default:
        if (unit == step_.head()) return backward_head(rank, mb);
        input_grad(rank, unit, mb);
        weight_grad(rank, unit, mb);
    }
  }

  void forward(Rank& rank, int unit, int mb) {
    const bool is_local = unit == 0 || step_.holds(rank.coord, unit - 1);
    const Formula input =
        unit == 0 ? get(rank, {'t', mb, 0}) : take(rank, {is_local ? 'y' : 'Y', unit - 1, mb});
    if (unit > 0 && !step_.forward_only)
      rank.values[{step_.recomputes(unit) ? 'c' : 'x', unit, mb}] = input;
    if (unit < step_.head())
      rank.values[{'y', unit, mb}] = formula(Sign::kOutput, {weights(rank, unit), input});
    else if (step_.forward_only)
      loss_ += formula(Sign::kLoss, {get(rank, {'w', unit, 0}), input, get(rank, {'t', mb, 0})});
  }

  void backward_head(Rank& rank, int mb) {
    const int unit = step_.head();
    const Formula weights = get(rank, {'w', unit, 0}), input = take(rank, {'x', unit, mb}),
                  tokens = get(rank, {'t', mb, 0}), count = get(rank, {'n', 0, 0});
    loss_ += formula(Sign::kLoss, {weights, input, tokens});
    rank.values[{'g', unit - 1, mb}] = formula(Sign::kInputGrad, {weights, input, tokens, count});
    add(rank, unit, mb, formula(Sign::kWeightGrad, {weights, input, tokens, count}));
  }

  void input_grad(Rank& rank, int unit, int mb) {
    if (unit == step_.head()) return fail("the head is never split");
    const bool is_local = step_.holds(rank.coord, unit + 1);
    const Formula grad = take(rank, {is_local ? 'g' : 'G', unit, mb});
    const Formula input = unit == 0 ? get(rank, {'t', mb, 0}) : take(rank, {'x', unit, mb});
    rank.values[{'k', unit, mb}] = formula(Sign::kWeightGrad, {input, grad});
    if (unit > 0)
      rank.values[{'g', unit - 1, mb}] =
          formula(Sign::kInputGrad, {weights(rank, unit), input, grad});
  }

  void weight_grad(Rank& rank, int unit, int mb) {
    add(rank, unit, mb, take(rank, {'k', unit, mb}));
  }

  // The first microbatch of a period overwrites.
  void add(Rank& rank, int unit, int mb, Formula grad) {
    const bool is_first = mb == 0 || step_.period == Period::kMicrobatch;
    for (const int segment : segments_of(step_, unit)) {
      const Key sum = {'m', segment, step_.period_of(mb)};
      rank.values[sum] = is_first ? grad : formula(Sign::kSum, {get(rank, sum), grad});
    }
  }

  void issue(Rank& rank, const Op& op) {
    Formula& held = rank.in_flight[rank.next];
    switch (op.kind) {
      case OpKind::kSend:
        held = sent_[op.transfer].size();
        sent_[op.transfer].push_back(take(rank, tensor(op.transfer, false)));
        return;
      case OpKind::kPostRecv:
        held = number(posted_[op.transfer]++);
        return;
      case OpKind::kGather:
        held = get(rank, {'o', op.unit, 0});
        rank.values.erase({'w', op.unit, 0});
        return;
      case OpKind::kAllGatherUpdated:
        held = take(rank, {'w', op.unit, 0});
        return;
      case OpKind::kReduce:
        held = get(rank, {'m', op.unit, op.period});
        return;
      case OpKind::kReduceAcross:
        held = get(rank, {'r', op.unit, op.period});
        return;
      case OpKind::kReduceReplicated:
        held = get(rank, {'a', op.unit, 0});
        return;
      case OpKind::kFree:
        take(rank, {'w', op.unit, 0});
        return;
      default:  // Update
        rank.values[owned(op.unit)] = formula(
            Sign::kUpdated,
            {get(rank, owned(op.unit)), take(rank, {'a', op.unit, 0}), get(rank, {'N', 0, 0})});
    }
  }

  Key tensor(int transfer, bool is_received) const {
    const Transfer& row = program_.transfers[static_cast<std::size_t>(transfer)];
    const char sign = row.is_grad ? (is_received ? 'G' : 'g') : (is_received ? 'Y' : 'y');
    return {sign, row.unit, row.microbatch};
  }

  bool wait(Rank& rank, std::size_t place) {
    const auto found = rank.in_flight.find(place);
    if (found == rank.in_flight.end()) return fail("waits for what is not in flight"), false;
    const Formula held = found->second;
    const Op& op = program_.list(rank.coord)[place];
    if (op.kind == OpKind::kSend && number(posted_[op.transfer]) <= held) return false;
    if (op.kind == OpKind::kPostRecv && sent_[op.transfer].size() <= held) return false;
    rank.in_flight.erase(found);
    finish(rank, op, held);
    return true;
  }

  void finish(Rank& rank, const Op& op, Formula held) {
    const Formula group = number(op.group);
    if (op.kind == OpKind::kPostRecv)
      rank.values[tensor(op.transfer, true)] = sent_[op.transfer][held];
    if (op.kind == OpKind::kGather && get(rank, {'o', op.unit, 0}) != held) fail("shard changed");
    if (op.kind == OpKind::kGather || op.kind == OpKind::kAllGatherUpdated)
      rank.values[{'w', op.unit, 0}] = formula(Sign::kGathered, {group, held});
    if (op.kind == OpKind::kReduce) {
      if (take(rank, {'m', op.unit, op.period}) != held) fail("gradient changed");
      const Formula part = formula(Sign::kReduced, {group, held});
      if (step_.zero > 0 && step_.replicas)
        rank.values[{'r', op.unit, op.period}] = part;
      else
        accumulate(rank, op, part);
    }
    if (op.kind == OpKind::kReduceAcross) {
      if (take(rank, {'r', op.unit, op.period}) != held) fail("gradient changed");
      accumulate(rank, op, formula(Sign::kAcross, {group, held}));
    }
    if (op.kind == OpKind::kReduceReplicated) {
      if (get(rank, {'a', op.unit, 0}) != held) fail("gradient changed");
      rank.values[{'a', op.unit, 0}] = formula(Sign::kReplicated, {group, held});
    }
  }

  void accumulate(Rank& rank, const Op& op, Formula part) {
    const Key sum = {'a', op.unit, 0};
    rank.values[sum] = op.period == 0 ? part : formula(Sign::kSum, {get(rank, sum), part});
  }

  // The collectives over coordinates; whether one took place.
  bool join() {
    Rank& first = ranks_[static_cast<std::size_t>(step_.coord_of(0).value)];
    Rank& last = ranks_[static_cast<std::size_t>(step_.coord_of(step_.head()).value)];
    if (is_at(first, OpKind::kReduceTied) && is_at(last, OpKind::kReduceTied)) {
      const Key tied[] = {{'a', 0, 0}, {'a', step_.head(), 0}};
      const CommGroup group = at(first).group;
      const Formula sum =
          formula(Sign::kTied, {number(group), get(first, tied[0]), get(last, tied[1])});
      if (at(last).group != group) fail("different groups");
      first.values[tied[0]] = last.values[tied[1]] = sum;
      ++first.next;
      if (&first != &last) ++last.next;
      return true;
    }
    for (const Rank& rank : ranks_)
      if (!is_at(rank, OpKind::kNorm)) return false;
    norm();
    return true;
  }

  void norm() {
    const CommGroup group = at(ranks_[0]).group;
    out_.norm = formula(Sign::kNorm, {number(group), loss_});
    if (!step_.forward_only)
      for (const int segment : all_segments(step_))
        out_.norm = formula(Sign::kNorm, {out_.norm, get(holder(segment), {'a', segment, 0})});
    for (Rank& rank : ranks_) {
      if (at(rank).group != group) fail("different groups");
      rank.values[{'N', 0, 0}] = out_.norm;
      ++rank.next;
    }
  }

  const Program& program_;
  const StepShape& step_;
  std::vector<Rank> ranks_;
  std::map<int, std::vector<Formula>> sent_;  // by transfer, in order
  std::map<int, int> posted_;
  Formula loss_ = 0;
  Outcome out_;
};

}  // namespace

Outcome reference(const StepShape& step) { return Reference(step).run(); }

Outcome interpret(const Program& program) { return Interpreter(program).run(); }

}  // namespace lockstep::program

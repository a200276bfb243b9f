#include "lockstep/exec/executor.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::exec {

using program::Effects;
using program::Op;
using program::OpKind;
using program::Value;

Executor::Executor(const program::Program& program, Coord coord, const Groups& groups,
                   Workspace& workspace, Options options)
    : program_(program), groups_(groups), workspace_(workspace), options_(std::move(options)) {
  for (const Op& op : program.list(coord)) ops_.push_back({op, effects(program, coord, op)});
}

StepSums Executor::run(const Observer& observer) {
  clock_ = RealClock();
  timeline_.clear();
  lanes_.clear();
  timeline_.reserve(ops_.size());
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    place(i, false);
    const TimePoint start = clock_.now();
    check_before(ops_[i]);
    run_op(ops_[i]);
    if (is_async(ops_[i].op.kind)) in_flight_.push_back(static_cast<int>(i));
    check_after(ops_[i]);
    timeline_.push_back(
        {static_cast<std::int32_t>(i), start.since_start, clock_.now().since_start});
    if (observer) observer(static_cast<int>(i));
  }
  std::ranges::sort(lanes_, {}, &program::TimedOp::op);
  LS_CHECK(in_flight_.empty(), in_flight_.size(), " operations were not waited for");
  ++step_;
  place(ops_.size(), false);
  return std::exchange(sums_, {});
}

void Executor::place(std::size_t op, bool waits) {
  now_ = op;
  if (options_.place) options_.place(static_cast<int>(op), waits);
}

std::optional<comm::Ran> Executor::wait_for(comm::Work& work) {
  place(now_, true);
  return work.wait();
}

void Executor::add_up(program::CommGroup group, Buffer data) {
  const bool is_host = data.device.kind == DeviceKind::kCpu;
  for (comm::Communicator* communicator : is_host ? groups_.on_host(group) : groups_.of(group)) {
    comm::Work work = communicator->all_reduce(data, deadline());
    wait_for(work);
  }
}

// What an operation in flight defines or changes is nobody's; what it reads may be read.
void Executor::check_in_flight(const Prepared& prepared) const {
  const auto touches = [](const std::vector<Value>& some, const std::vector<Value>& others) {
    return std::ranges::find_first_of(some, others) != some.end();
  };
  const Effects& now = prepared.effects;
  for (int index : in_flight_) {
    if (prepared.op.kind == OpKind::kWait && prepared.op.target == index) continue;
    const Effects& other = ops_[index].effects;
    for (const auto* mine : {&now.reads, &now.mutates, &now.kills})
      for (const auto* theirs : {&other.defines, &other.mutates})
        LS_CHECK(!touches(*mine, *theirs), "op uses what op ", index, " has not finished");
    for (const auto* mine : {&now.mutates, &now.kills})
      LS_CHECK(!touches(*mine, other.reads), "op changes what op ", index, " still reads");
  }
}

void Executor::check_before(const Prepared& prepared) const {
  check_in_flight(prepared);
  for (const auto* values :
       {&prepared.effects.reads, &prepared.effects.mutates, &prepared.effects.kills})
    for (const Value& value : *values)
      LS_CHECK(is_number(value) || workspace_.holds(value), to_text(value), " is not there");
  for (const Value& value : prepared.effects.defines)
    LS_CHECK(is_number(value) || !workspace_.holds(value), to_text(value), " is there already");
}

void Executor::check_after(const Prepared& prepared) const {
  for (const Value& value : prepared.effects.kills)
    LS_CHECK(!workspace_.holds(value), to_text(value), " was left behind");
  for (const Value& value : prepared.effects.defines)
    LS_CHECK(is_number(value) || workspace_.holds(value), to_text(value), " was not made");
}

void Executor::run_op(Prepared& prepared) {
  if (is_async(prepared.op.kind)) {
    prepared.work = start(prepared);
    return;
  }
  switch (prepared.op.kind) {
    case OpKind::kFree:
      return workspace_.drop(prepared.effects.kills[0]);
    case OpKind::kCount:
      return count(prepared);
    case OpKind::kReduceTied:
      return reduce_tied(prepared);
    case OpKind::kNorm:
      return norm(prepared);
    case OpKind::kWait:
      return wait(prepared);
    default:
      return workspace_.compute(prepared.op, prepared.effects);
  }
}

// An op that its Wait ends.
comm::Work Executor::start(Prepared& prepared) {
  const Op& op = prepared.op;
  const Effects& effects = prepared.effects;
  switch (op.kind) {
    case OpKind::kSend:
      workspace_.move(effects.kills[0], effects.defines[0]);
      return link(op).send(workspace_.buffer(effects.defines[0]), transfer(op).to.value,
                           tag_of(op.transfer), deadline());
    case OpKind::kPostRecv:
      return link(op).recv(workspace_.create(effects.defines[0]), transfer(op).from.value,
                           tag_of(op.transfer), deadline());
    case OpKind::kGather: {
      const Buffer shard = workspace_.buffer(effects.reads[0]);
      return groups_.gathers(op.group).all_gather(shard, workspace_.create(effects.defines[0]),
                                                  deadline());
    }
    case OpKind::kAllGatherUpdated:
      return groups_.gathers(op.group).all_gather(
          workspace_.own_part(op.unit), workspace_.buffer(effects.mutates[0]), deadline());
    case OpKind::kReduceReplicated: {
      for (const Buffer& part : workspace_.copied_parts(op.unit))
        if (part.count > 0)
          prepared.beside.push_back(groups_.copies().all_reduce(part, deadline()));
      const Buffer part = workspace_.replicated_part(op.unit);
      return part.count == 0 ? comm::Work() : groups_.one(op.group).all_reduce(part, deadline());
    }
    case OpKind::kReduce:
    case OpKind::kReduceAcross: {
      if (effects.defines.empty())
        return groups_.one(op.group).all_reduce(workspace_.buffer(effects.mutates[0]), deadline());
      const Buffer whole = workspace_.buffer(effects.reads[0]);
      return groups_.one(op.group).reduce_scatter(whole, workspace_.create(effects.defines[0]),
                                                  deadline());
    }
    default:
      LS_CHECK(false, "not an asynchronous op");
  }
}

// Injective within two consecutive steps, so that a late message cannot be taken for a new one.
int Executor::tag_of(int transfer) const {
  const auto transfers = std::ssize(program_.transfers);
  const std::int64_t tag = step_ % 2 * transfers + transfer;
  LS_CHECK(tag < (std::int64_t{1} << 30), "too many transfers to tag: ", transfers);
  return static_cast<int>(tag);
}

void Executor::count(const Prepared& prepared) {
  std::int64_t tokens = workspace_.valid_tokens();
  add_up(prepared.op.group, {&tokens, 1, DType::kI64, {}});
  workspace_.set_count(tokens);
}

void Executor::reduce_tied(const Prepared& prepared) {
  std::vector<Buffer> parts;
  for (const Value& grad : prepared.effects.mutates) parts.push_back(workspace_.tied_part(grad.a));
  if (parts[0].count == 0) return;
  if (parts.size() == 2) {  // embedding + head, and back
    workspace_.add(parts[1], parts[0]);
    workspace_.copy(parts[0], parts[1]);
    return;
  }
  add_up(prepared.op.group, parts[0]);
}

namespace {

// Integers that can be added up over ranks, and back.
std::vector<std::int64_t> to_words(const StepSums& sums, const program::StepShape& step) {
  std::vector<std::int64_t> words = {sums.tokens, sums.stops};
  const auto append = [&](const ExactSum& sum) {
    const ExactSum::Words part = sum.to_words();
    words.insert(words.end(), part.begin(), part.end());
  };
  append(sums.squares);
  append(sums.loss);
  if (step.num_routed() > 0) {
    append(sums.aux_loss);
    append(sums.z_loss);
    LS_CHECK(std::ssize(sums.expert_tokens) == step.num_routed(), "tokens of ",
             sums.expert_tokens.size(), " experts, not ", step.num_routed());
    words.insert(words.end(), sums.expert_tokens.begin(), sums.expert_tokens.end());
  }
  if (step.noise) {
    append(sums.noise_squares);
    words.push_back(sums.noise_tokens);
  }
  if (step.checks) {  // of the residue halves, whose sums over a world do not overflow
    words.push_back(sums.faults);
    words.push_back(static_cast<std::int64_t>(sums.residue & 0xFFFFFFFF));
    words.push_back(static_cast<std::int64_t>(sums.residue >> 32));
  }
  return words;
}

StepSums from_words(const std::vector<std::int64_t>& words, const program::StepShape& step) {
  auto next = words.begin() + 2;
  const auto take = [&] {
    ExactSum::Words part;
    std::copy_n(next, part.size(), part.begin());
    next += std::ssize(part);
    return ExactSum::from_words(part);
  };
  StepSums sums;
  sums.tokens = words[0];
  sums.stops = words[1];
  sums.squares = take();
  sums.loss = take();
  if (step.num_routed() > 0) {
    sums.aux_loss = take();
    sums.z_loss = take();
    sums.expert_tokens.assign(next, next + step.num_routed());
    next += step.num_routed();
  }
  if (step.noise) {
    sums.noise_squares = take();
    sums.noise_tokens = *next++;
  }
  if (step.checks) {
    sums.faults = next[0];
    sums.residue =
        static_cast<std::uint64_t>(next[1]) + (static_cast<std::uint64_t>(next[2]) << 32);
  }
  return sums;
}

}  // namespace

void Executor::norm(const Prepared& prepared) {
  const program::StepShape& step = program_.step;
  std::vector<std::int64_t> words = to_words(workspace_.sums(), step);
  add_up(prepared.op.group, {words.data(), std::ssize(words), DType::kI64, {}});
  sums_ = from_words(words, step);
  workspace_.set_sums(sums_);
}

// The end of an asynchronous op: what it was for, then what its Wait kills or adds up.
void Executor::wait(const Prepared& prepared) {
  Prepared& target = ops_[prepared.op.target];
  for (comm::Work& work : std::exchange(target.beside, {})) wait_for(work);
  if (const std::optional<comm::Ran> ran = wait_for(target.work))
    lanes_.push_back(
        {prepared.op.target, clock_.at(ran->begin).since_start, clock_.at(ran->end).since_start});
  std::erase(in_flight_, prepared.op.target);
  const Effects& end = prepared.effects;
  const bool accumulates = !end.reads.empty();
  if (accumulates && !end.defines.empty()) workspace_.move(end.reads[0], end.defines[0]);
  if (accumulates && !end.mutates.empty())
    workspace_.add(workspace_.buffer(end.reads[0]), workspace_.buffer(end.mutates[0]));
  for (const Value& value : end.kills)
    if (workspace_.holds(value)) workspace_.drop(value);
}

}  // namespace lockstep::exec

#include "lockstep/program/memory_walk.h"

#include <algorithm>

#include "lockstep/base/check.h"

namespace lockstep::program {
namespace {

// Of a unit's values, in the order of ValueKind; numbers have no memory of their own.
constexpr std::array<std::int64_t UnitBytes::*, kNumValueKinds> kBytesOf = {
    nullptr,  // kTokens: of a pipeline rank
    &UnitBytes::act,
    &UnitBytes::checkpoint,
    &UnitBytes::stash,
    &UnitBytes::act,  // kGrad
    &UnitBytes::weight_work,
    &UnitBytes::param,
    &UnitBytes::param_shard,
    &UnitBytes::main_grad,
    &UnitBytes::grad_shard,  // kReduced
    &UnitBytes::main_grad,   // kAccGrad
    &UnitBytes::grad_shard,
    &UnitBytes::optimizer,
    &UnitBytes::act,  // kSendBuffer
    &UnitBytes::act,  // kRecvBuffer
};

std::int64_t surge_of(const ProgramBytes& bytes, const Op& op, const Effects& fx) {
  if (op.unit < 0) return 0;
  const bool is_first =
      std::ranges::find(fx.defines, ValueKind::kMainGrad, &Value::kind) != fx.defines.end();
  const UnitBytes& unit = bytes.of(op.unit, op.microbatch);
  switch (op.kind) {
    case OpKind::kForward:
      return unit.forward;
    case OpKind::kRecompute:
      return unit.recompute;
    case OpKind::kBackward:
      return is_first ? unit.first_backward : unit.backward;
    case OpKind::kInputGrad:
      return unit.input_grad;
    case OpKind::kWeightGrad:
      return is_first ? unit.first_weight_grad : unit.weight_grad;
    case OpKind::kUpdate:
      return unit.update;
    default:
      return 0;
  }
}

class Walk {
 public:
  Walk(const Program& program, Coord coord, const ProgramBytes& bytes)
      : program_(program), coord_(coord), bytes_(bytes) {
    out_.constants = bytes.constants[coord.value];
    total_ = out_.constants;
    for (const Value& value : persistent(program.step, coord)) change(value, 1);
    out_.before = total_;
    raise_peak(-1, 0);
  }

  MemoryWalk run() {
    const auto& list = program_.list(coord_);
    out_.live.reserve(list.size());
    Effects fx;
    for (std::size_t i = 0; i < list.size(); ++i) {
      write_effects(program_, coord_, list[i], fx);
      raise_peak(static_cast<std::int32_t>(i), surge(list[i], fx));
      for (const Value& value : fx.kills) change(value, -1);
      for (const Value& value : fx.defines) change(value, 1);
      raise_peak(static_cast<std::int32_t>(i), 0);
      out_.live.push_back(total_);
    }
    return std::move(out_);
  }

 private:
  void change(const Value& value, int sign) {
    const std::int64_t size = sign * value_bytes(program_, coord_, bytes_, value);
    by_kind_[static_cast<std::size_t>(value.kind)] += size;
    total_ += size;
  }

  std::int64_t surge(const Op& op, const Effects& fx) const {
    const std::int64_t inside = surge_of(bytes_, op, fx);
    if (!program_.step.is_noise(op)) return inside;
    std::int64_t at_end = bytes_.units[op.unit].noise;
    for (const Value& value : fx.kills) at_end -= value_bytes(program_, coord_, bytes_, value);
    for (const Value& value : fx.defines) at_end += value_bytes(program_, coord_, bytes_, value);
    return std::max(inside, at_end);
  }

  void raise_peak(std::int32_t op, std::int64_t surge) {
    if (total_ + surge <= out_.peak && op >= 0) return;
    out_.peak = total_ + surge;
    out_.peak_op = op;
    out_.by_kind = by_kind_;
    out_.surge = surge;
  }

  const Program& program_;
  Coord coord_;
  const ProgramBytes& bytes_;
  std::array<std::int64_t, kNumValueKinds> by_kind_ = {};
  std::int64_t total_ = 0;
  MemoryWalk out_;
};

}  // namespace

std::int64_t value_bytes(const Program& program, Coord coord, const ProgramBytes& bytes,
                         const Value& value) {
  if (value.kind == ValueKind::kTokens) return bytes.tokens[coord.value];
  const auto member = kBytesOf[static_cast<std::size_t>(value.kind)];
  if (member == nullptr) return 0;
  const bool is_buffer =
      value.kind == ValueKind::kSendBuffer || value.kind == ValueKind::kRecvBuffer;
  return is_buffer ? bytes.units[program.transfers[value.a].unit].*member
                   : bytes.of(value.a, value.b).*member;
}

MemoryWalk walk(const Program& program, Coord coord, const ProgramBytes& bytes) {
  LS_CHECK(std::ssize(bytes.units) == program.step.num_segments(), "sizes of ", bytes.units.size(),
           " segments");
  LS_CHECK(
      bytes.tokens.size() == program.lists.size() && bytes.constants.size() == program.lists.size(),
      "sizes for other pipeline ranks");
  return Walk(program, coord, bytes).run();
}

}  // namespace lockstep::program

#include "lockstep/program/list_checks.h"

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <vector>

#include "lockstep/program/effects.h"
#include "lockstep/program/inventory.h"
#include "lockstep/program/op_table.h"
#include "lockstep/program/text.h"

namespace lockstep::program {
namespace {

std::int32_t as_int(std::size_t number) { return static_cast<std::int32_t>(number); }

class NumberCheck {
 public:
  NumberCheck(const Program& program, Coord coord, Problems& problems)
      : program_(program),
        coord_(coord),
        problems_(problems),
        limits_{program.step.num_segments(), program.step.shape.microbatches,
                program.step.periods(), as_int(program.transfers.size()),
                as_int(program.list(coord).size())} {
    is_own_.assign(static_cast<std::size_t>(program.step.num_segments()), false);
    program.step.for_each_segment(coord, [&](int segment) { is_own_[segment] = true; });
  }

  void run() {
    const auto& list = program_.list(coord_);
    for (std::size_t i = 0; i < list.size() && !problems_.is_full(); ++i) check(as_int(i), list[i]);
  }

 private:
  void check(std::int32_t index, const Op& op) {
    const OpRow& row = op_row(op.kind);
    for (int i = 0; i < kNumOpFields; ++i) {
      const std::int32_t number = op.*kOpFields[i].member;
      // A computation is one of a unit, whatever segments it has.
      const bool is_unit = kOpFields[i].member == &Op::unit && op.microbatch >= 0;
      const std::int32_t limit = is_unit ? program_.step.units() : limits_[i];
      const bool is_fine = row.uses[i] ? number >= 0 && number < limit : number == -1;
      if (!is_fine)
        return problems_.add(coord_, index,
                             std::string(kOpFields[i].name) + " " + std::to_string(number) +
                                 (row.uses[i] ? " does not exist" : " means nothing to this op"));
    }
    const StepShape& step = program_.step;
    if (step.is_experts(op.unit) && !step.has_experts(step.unit_of(op.unit)))
      return problems_.add(coord_, index,
                           "unit " + std::to_string(step.unit_of(op.unit)) + " has no experts");
    if (op.unit >= 0 && !is_own_[op.unit])
      problems_.add(coord_, index,
                    "the unit belongs to pipeline rank " +
                        std::to_string(program_.step.coord_of(op.unit).value));
    if (op.kind == OpKind::kWait) check_wait(index, op);
    const CommGroup needed = usual_group(program_.step, op);
    if (op.group != needed)
      problems_.add(coord_, index,
                    "takes part in '" + std::string(to_text(op.group)) + "' instead of '" +
                        std::string(to_text(needed)) + "'");
  }

  void check_wait(std::int32_t index, const Op& op) {
    const std::string target = "op " + std::to_string(op.target);
    if (!is_async(program_.list(coord_)[op.target].kind))
      problems_.add(coord_, index, target + " is not asynchronous");
    else if (op.target >= index)
      problems_.add(coord_, index, "comes before " + target + ", for which it waits");
  }

  const Program& program_;
  Coord coord_;
  Problems& problems_;
  // One past the largest value of each number, in the order of kOpFields.
  std::array<std::int32_t, kNumOpFields> limits_;
  std::vector<bool> is_own_;
};

// One number per op but Wait: kinds use a unit or a transfer, and a microbatch or a period, below
// the limits of check_step; unused numbers are -1.
std::uint64_t identity_of(const Op& op) {
  const auto kind = static_cast<std::uint64_t>(op.kind);
  const auto what = static_cast<std::uint64_t>(std::max(op.unit, op.transfer) + 1);
  const auto when = static_cast<std::uint64_t>(std::max(op.microbatch, op.period) + 1);
  return kind << 56 | what << 28 | when;
}

struct Found {
  std::uint64_t identity;
  std::int32_t index;
  auto operator<=>(const Found&) const = default;
};

// Ops of the list that the inventory counts, sorted.
std::vector<Found> counted_ops(const Program& program, Coord coord) {
  std::vector<Found> found;
  const auto& list = program.list(coord);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const OpKind kind = list[i].kind;
    const bool is_free_choice =
        kind == OpKind::kWait ||
        (program.step.zero == 3 && (kind == OpKind::kGather || kind == OpKind::kFree));
    if (!is_free_choice) found.push_back({identity_of(list[i]), as_int(i)});
  }
  std::ranges::sort(found);
  return found;
}

class ComputeOrder {
 public:
  ComputeOrder(const Program& program, Coord coord, Problems& problems)
      : program_(program), coord_(coord), problems_(problems) {
    const auto units = static_cast<std::size_t>(program.step.units());
    phase_.assign(units * program.step.shape.microbatches, 0);
    last_input_.assign(units, -1);
    last_weight_.assign(units, -1);
  }

  void run() {
    const auto& list = program_.list(coord_);
    for (std::size_t i = 0; i < list.size(); ++i) check(as_int(i), list[i]);
  }

 private:
  static int phase_of(OpKind kind) {
    switch (kind) {
      case OpKind::kForward:
        return 1;
      case OpKind::kRecompute:
        return 2;
      case OpKind::kInputGrad:
      case OpKind::kBackward:
        return 3;
      case OpKind::kWeightGrad:
        return 4;
      default:
        return 0;
    }
  }

  void check(std::int32_t index, const Op& op) {
    const int phase = phase_of(op.kind);
    if (phase == 0) return;
    const auto unit = static_cast<std::size_t>(op.unit);
    std::uint8_t& reached = phase_[unit * program_.step.shape.microbatches + op.microbatch];
    if (phase <= reached)
      problems_.add(coord_, index,
                    "the order of one microbatch is F, R, I, W (B in place of I, W)");
    reached = std::max(reached, static_cast<std::uint8_t>(phase));
    if (phase == 3) ascend(index, op, last_input_[unit]);
    if (phase == 4 || op.kind == OpKind::kBackward) ascend(index, op, last_weight_[unit]);
  }

  void ascend(std::int32_t index, const Op& op, std::int32_t& last) {
    if (op.microbatch <= last)
      problems_.add(coord_, index,
                    "comes after microbatch " + std::to_string(last) + " of the same unit");
    last = op.microbatch;
  }

  const Program& program_;
  Coord coord_;
  Problems& problems_;
  std::vector<std::uint8_t> phase_;  // per unit and microbatch: how far it came
  std::vector<std::int32_t> last_input_;
  std::vector<std::int32_t> last_weight_;
};

}  // namespace

void check_numbers(const Program& program, Coord coord, Problems& problems) {
  NumberCheck(program, coord, problems).run();
}

void check_inventory(const Program& program, Coord coord, Problems& problems) {
  std::vector<Op> required =
      required_ops(program.step, coord, program.transfers, program.list(coord));
  std::ranges::sort(required, {}, identity_of);
  const std::vector<Found> found = counted_ops(program, coord);
  std::size_t next = 0;
  const auto is_next = [&](const Op& op) {
    return next < found.size() && found[next].identity == identity_of(op);
  };
  const auto report_others = [&](const Op* before) {
    for (; next < found.size(); ++next) {
      if (before != nullptr && found[next].identity >= identity_of(*before)) return;
      problems.add(coord, found[next].index, "is no part of this step on this pipeline rank");
    }
  };
  for (const Op& op : required) {
    report_others(&op);
    if (!is_next(op)) problems.add(coord, op_text(program, coord, op) + " is missing");
    for (bool is_first = true; is_next(op); is_first = false, ++next)
      if (!is_first) problems.add(coord, found[next].index, "happens twice");
  }
  report_others(nullptr);
}

void check_compute_order(const Program& program, Coord coord, Problems& problems) {
  ComputeOrder(program, coord, problems).run();
}

}  // namespace lockstep::program

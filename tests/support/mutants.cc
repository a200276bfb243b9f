#include "tests/support/mutants.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "lockstep/program/effects.h"
#include "lockstep/program/op_table.h"
#include "lockstep/program/text.h"

namespace lockstep::program {
namespace {

constexpr std::string_view kKindNames[] = {"drop",  "drop wait", "double", "group", "order",
                                           "early", "late",      "keep",   "number"};

bool is_transfer(OpKind kind) { return kind == OpKind::kSend || kind == OpKind::kPostRecv; }

// Values an op touches, and those of them it makes, changes or frees.
struct Touched {
  std::vector<Value> all;
  std::vector<Value> written;
};

Touched touched_by(const Program& program, Coord coord, const Op& op) {
  Touched touched;
  const auto add = [&touched](const Effects& fx) {
    for (const auto* values : {&fx.defines, &fx.mutates, &fx.kills})
      touched.written.insert(touched.written.end(), values->begin(), values->end());
    touched.all.insert(touched.all.end(), fx.reads.begin(), fx.reads.end());
  };
  add(effects(program, coord, op));
  if (op.kind == OpKind::kWait)
    add(effects(program, coord, program.list(coord)[static_cast<std::size_t>(op.target)]));
  touched.all.insert(touched.all.end(), touched.written.begin(), touched.written.end());
  return touched;
}

bool has_common(const std::vector<Value>& a, const std::vector<Value>& b) {
  return std::ranges::any_of(
      a, [&](const Value& value) { return std::ranges::find(b, value) != b.end(); });
}

bool conflict(const Touched& a, const Touched& b) {
  return has_common(a.written, b.all) || has_common(a.all, b.written);
}

bool needs_tensor_group(CommGroup group) {
  return group == CommGroup::kTensor || group == CommGroup::kDataTensorPipeline;
}

// Mutants of one coordinate's list.
class Mutator {
 public:
  Mutator(const Program& program, Coord coord, std::set<Hash128>& known, std::vector<Mutant>& out)
      : program_(program), coord_(coord), list_(program.list(coord)), known_(known), out_(out) {
    wait_of_.assign(list_.size(), -1);
    for (std::size_t i = 0; i < list_.size(); ++i) {
      if (list_[i].kind == OpKind::kWait)
        wait_of_[static_cast<std::size_t>(list_[i].target)] = static_cast<int>(i);
      touched_.push_back(touched_by(program, coord, list_[i]));
      lanes_.push_back(effects(program, coord, list_[i]).lane);
    }
  }

  void run() {
    for (at_ = 0; at_ < size(); ++at_) {
      drop();
      twice();
      group();
      early();
      late();
      order();
      stay();
      number();
    }
  }

 private:
  int size() const { return static_cast<int>(list_.size()); }
  const Op& op(int index) const { return list_[static_cast<std::size_t>(index)]; }
  int wait_of(int index) const { return wait_of_[static_cast<std::size_t>(index)]; }
  const Touched& touched(int index) const { return touched_[static_cast<std::size_t>(index)]; }

  // Keeps the list made of the original's ops at these indices; an index may occur twice, and then
  // its Waits are meant for the copies one after the other.
  void keep(MutantKind kind, const std::vector<int>& from, const std::string& detail = "") {
    std::vector<std::vector<int>> places(list_.size());
    for (std::size_t i = 0; i < from.size(); ++i)
      places[static_cast<std::size_t>(from[i])].push_back(static_cast<int>(i));
    std::vector<std::size_t> waits_seen(list_.size(), 0);
    std::vector<Op> changed;
    for (const int index : from) {
      changed.push_back(op(index));
      if (op(index).kind != OpKind::kWait) continue;
      const auto target = static_cast<std::size_t>(op(index).target);
      const std::vector<int>& copies = places[target];
      const std::size_t copy = std::min(waits_seen[target]++, copies.size() - 1);
      changed.back().target = copies[copy];
    }
    keep(kind, std::move(changed), detail);
  }

  void keep(MutantKind kind, std::vector<Op> changed, const std::string& detail) {
    Program mutant = program_;
    mutant.lists[static_cast<std::size_t>(coord_.value)] = std::move(changed);
    if (!known_.insert(program_hash(mutant)).second) return;
    std::string what = "pipeline rank " + std::to_string(coord_.value) + ", op " +
                       std::to_string(at_) + ", " + op_text(program_, coord_, op(at_)) + ": " +
                       std::string(to_text(kind)) + detail;
    out_.push_back({kind, coord_, at_, std::move(what), std::move(mutant)});
  }

  std::vector<int> unchanged() const {
    std::vector<int> from(list_.size());
    std::iota(from.begin(), from.end(), 0);
    return from;
  }

  void drop() {
    std::vector<int> from = unchanged();
    const int wait = wait_of(at_);
    std::erase_if(from, [&](int index) { return index == at_ || index == wait; });
    keep(op(at_).kind == OpKind::kWait ? MutantKind::kDropWait : MutantKind::kDrop, from);
  }

  void twice() {
    std::vector<int> from;
    for (int i = 0; i < size(); ++i) {
      from.push_back(i);
      if (i == at_ || i == wait_of(at_)) from.push_back(i);
    }
    keep(MutantKind::kDouble, from);
  }

  void group() {
    if (op(at_).group == CommGroup::kNone) return;
    for (int i = 0; i < kNumCommGroups; ++i) {
      const auto other = static_cast<CommGroup>(i);
      if (other == op(at_).group) continue;
      if (needs_tensor_group(other) && !program_.step.tensor_parallel) continue;
      if (other >= CommGroup::kExpertShard && program_.step.experts.empty()) continue;
      std::vector<Op> changed = list_;
      changed[static_cast<std::size_t>(at_)].group = other;
      keep(MutantKind::kGroup, std::move(changed), " " + std::string(to_text(other)));
    }
  }

  void swap_with(int other) {
    std::vector<int> from = unchanged();
    std::swap(from[static_cast<std::size_t>(at_)], from[static_cast<std::size_t>(other)]);
    keep(MutantKind::kOrder, from, " with op " + std::to_string(other));
  }

  // Waits change places with waits only: with others they are early or late.
  void order() {
    const auto lane = [this](int index) { return lanes_[static_cast<std::size_t>(index)]; };
    const auto is_wait = [this](int index) { return op(index).kind == OpKind::kWait; };
    const auto is_neighbour = [&](int other) {
      return is_wait(at_) == is_wait(other) && (is_wait(at_) || lane(at_) == lane(other));
    };
    const auto swap_with_next = [&](auto is_wanted) {
      if (const auto other = find(1, is_wanted)) swap_with(*other);
    };
    const Op& own = op(at_);
    swap_with_next([&](int other) { return op(other).kind == own.kind; });
    if (own.unit >= 0)
      swap_with_next(
          [&](int other) { return op(other).kind == own.kind && op(other).unit == own.unit; });
    if (is_transfer(own.kind))
      swap_with_next(
          [&](int other) { return is_transfer(op(other).kind) && op(other).kind != own.kind; });
    for (const int step : {-1, 1})
      if (const auto other = find(step, is_neighbour)) swap_with(*other);
  }

  // The nearest op in that direction that is wanted.
  template <class Wanted>
  std::optional<int> find(int step, Wanted is_wanted) const {
    for (int other = at_ + step; other >= 0 && other < size(); other += step)
      if (is_wanted(other)) return other;
    return std::nullopt;
  }

  std::optional<int> conflicting(int step) const {
    return find(step, [this](int other) { return conflict(touched(at_), touched(other)); });
  }

  void early() {
    const auto before = conflicting(-1);
    if (!before) return;
    std::vector<int> from = unchanged();
    std::rotate(from.begin() + *before, from.begin() + at_, from.begin() + at_ + 1);
    keep(MutantKind::kEarly, from, ", before op " + std::to_string(*before));
  }

  void late() {
    const auto behind = conflicting(1);
    if (!behind) return;
    std::vector<int> from = unchanged();
    std::rotate(from.begin() + at_, from.begin() + at_ + 1, from.begin() + *behind + 1);
    keep(MutantKind::kLate, from, ", behind op " + std::to_string(*behind));
  }

  void stay() {
    if (op(at_).kind != OpKind::kFree) return;
    const auto gather = find(1, [this](int other) {
      return op(other).kind == OpKind::kGather && op(other).unit == op(at_).unit;
    });
    if (!gather) return;
    std::vector<int> from = unchanged();
    std::erase_if(from, [&](int index) {
      return index == at_ || index == *gather || index == wait_of(*gather);
    });
    keep(MutantKind::kKeep, from, " until op " + std::to_string(*gather));
  }

  void number() {
    if (op(at_).kind == OpKind::kWait) return;
    for (const OpField& field : kOpFields) {
      const auto other = find(1, [&](int index) {
        return op(index).kind == op(at_).kind && op(index).*field.member != op(at_).*field.member;
      });
      if (!other) continue;
      std::vector<Op> changed = list_;
      changed[static_cast<std::size_t>(at_)].*field.member = op(*other).*field.member;
      keep(MutantKind::kNumber, std::move(changed),
           " " + std::string(field.name) + " " + std::to_string(op(*other).*field.member));
    }
  }

  const Program& program_;
  Coord coord_;
  const std::vector<Op>& list_;
  std::set<Hash128>& known_;
  std::vector<Mutant>& out_;
  std::vector<int> wait_of_;
  std::vector<Touched> touched_;
  std::vector<Lane> lanes_;
  int at_ = 0;
};

}  // namespace

std::string_view to_text(MutantKind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }

std::vector<Mutant> mutants(const Program& program) {
  std::vector<Mutant> out;
  std::set<Hash128> known = {program_hash(program)};
  for (std::int32_t c = 0; c < program.step.shape.coords; ++c)
    Mutator(program, {c}, known, out).run();
  return out;
}

std::array<int, kNumMutantKinds> count_by_kind(std::span<const Mutant> mutants) {
  std::array<int, kNumMutantKinds> counts = {};
  for (const Mutant& mutant : mutants) ++counts[static_cast<std::size_t>(mutant.kind)];
  return counts;
}

}  // namespace lockstep::program

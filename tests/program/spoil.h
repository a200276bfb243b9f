// Programs with one fault drawn at random, without regard to what the ops mean.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/program/effects.h"
#include "lockstep/program/op_table.h"
#include "tests/program/dice.h"
#include "tests/program/relist.h"

namespace lockstep::program {

enum class Spoil : std::uint8_t { kSwap, kMove, kDrop, kDuplicate, kRetarget };
inline constexpr const char* kSpoilNames[] = {"swap", "move", "drop", "duplicate", "retarget"};
inline constexpr int kNumSpoils = 5;

// Waits follow the ops they wait for: an op that moves or goes takes its own along, and a second
// copy has one of its own.
class Spoiler {
 public:
  Spoiler(const Program& program, Dice& dice) : program_(program), dice_(dice) {}

  // Differs from the program in the op, or the two, that one fault of this kind touches, and only
  // where `may_touch(coord, op)`. REQUIRES: some list has two such ops.
  template <class MayTouch>
  Program spoil(Spoil kind, MayTouch may_touch) {
    for (;;) {
      coord_ = {dice_.between(0, program_.step.shape.coords - 1)};
      const std::vector<Op>& list = program_.list(coord_);
      std::vector<int> places;
      for (std::size_t i = 0; i < list.size(); ++i)
        if (may_touch(coord_, list[i])) places.push_back(static_cast<int>(i));
      if (places.size() < 2) continue;
      items_ = named(list);
      damage(kind, places, dice_.between(0, static_cast<int>(places.size()) - 1));
      Program spoilt = program_;
      spoilt.lists[static_cast<std::size_t>(coord_.value)] = relisted(items_);
      if (spoilt != program_) return spoilt;
    }
  }
  Program spoil(Spoil kind) {
    return spoil(kind, [](Coord, const Op&) { return true; });
  }

 private:
  NamedOp& item(int place) { return items_[static_cast<std::size_t>(place)]; }

  void damage(Spoil kind, const std::vector<int>& places, int index) {
    const int last = static_cast<int>(places.size()) - 1;
    const int place = places[static_cast<std::size_t>(index)];
    if (kind == Spoil::kDrop) items_.erase(items_.begin() + place);
    if (kind == Spoil::kMove) move(place);
    if (kind == Spoil::kDuplicate) duplicate(place);
    if (kind == Spoil::kRetarget) retarget(place);
    if (kind != Spoil::kSwap) return;
    const int distance = dice_.coin() ? 2 : last;  // near ones are likelier to make no difference
    const int other =
        dice_.between(std::max(0, index - distance), std::min(last, index + distance));
    std::swap(item(place), item(places[static_cast<std::size_t>(other)]));
  }

  // Right behind itself, or anywhere.
  void duplicate(int place) {
    NamedOp copy = item(place);
    copy.id = static_cast<int>(items_.size());
    insert(copy, dice_.coin() ? place + 1 : dice_.between(0, static_cast<int>(items_.size())));
  }

  void move(int place) {
    const NamedOp moved = item(place);
    std::erase_if(items_, [&](const NamedOp& op) {
      return op.id == moved.id || (op.awaited == moved.id && op.awaited >= 0);
    });
    const int last = static_cast<int>(items_.size());
    insert(moved, dice_.coin() ? dice_.between(0, last)
                               : dice_.between(std::max(0, place - 3), std::min(last, place + 3)));
  }

  // With a Wait right behind it if it needs one.
  void insert(const NamedOp& op, int at) {
    if (is_async(op.op.kind))
      items_.insert(items_.begin() + at, {{.kind = OpKind::kWait}, kNewId, op.id});
    items_.insert(items_.begin() + at, op);
  }

  // Another unit, microbatch, period, transfer or awaited op; other ranks, for an op without
  // numbers.
  void retarget(int place) {
    Op& op = item(place).op;
    if (op.kind == OpKind::kWait) {
      const int other = dice_.between(0, static_cast<int>(items_.size()) - 1);
      if (is_async(item(other).op.kind)) item(place).awaited = item(other).id;
      return;
    }
    const int limits[] = {program_.step.num_segments(), program_.step.shape.microbatches,
                          program_.step.periods(), static_cast<int>(program_.transfers.size())};
    std::vector<int> used;
    for (int field = 0; field < 4; ++field)
      if (op_row(op.kind).uses[field]) used.push_back(field);
    if (used.empty()) {
      op.group = static_cast<CommGroup>(dice_.between(0, kNumCommGroups - 1));
      return;
    }
    const int field =
        used[static_cast<std::size_t>(dice_.between(0, static_cast<int>(used.size()) - 1))];
    op.*kOpFields[field].member = dice_.between(0, limits[field] - 1);
  }

  static constexpr int kNewId = 1 << 20;  // above every place

  const Program& program_;
  Dice& dice_;
  Coord coord_{0};
  std::vector<NamedOp> items_;
};

}  // namespace lockstep::program

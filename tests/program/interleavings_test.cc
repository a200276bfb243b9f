// One topological sort (deadlock.h) against every order of events, for all schedules of up to three
// coordinates, two chunks and three microbatches, on every transport.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <set>

#include "lockstep/pipeline/catalog.h"
#include "lockstep/program/lower.h"
#include "tests/program/explorer.h"
#include "tests/program/program_text.h"
#include "tests/program/relist.h"
#include "tests/program/spoil.h"

namespace lockstep::program {
namespace {

bool is_transfer(OpKind kind) { return kind == OpKind::kSend || kind == OpKind::kPostRecv; }

// Each receive right before it is waited for.
Program naive(Program program) {
  for (auto& list : program.lists) {
    const std::vector<NamedOp> ops = named(list);
    std::vector<NamedOp> moved;
    for (const NamedOp& op : ops) {
      if (op.op.kind == OpKind::kPostRecv) continue;
      if (op.awaited >= 0 && list[static_cast<std::size_t>(op.awaited)].kind == OpKind::kPostRecv)
        moved.push_back(ops[static_cast<std::size_t>(op.awaited)]);
      moved.push_back(op);
    }
    list = relisted(std::move(moved));
  }
  return program;
}

// Both ends of a transfer where one order of all lists has the send.
class Projection {
 public:
  explicit Projection(const Program& program)
      : program_(program), next_(program.lists.size()), out_(program.lists.size()) {
    for (const auto& list : program.lists) lists_.push_back(named(list));
  }

  Program take() {
    for (bool has_moved = true; has_moved;) {
      has_moved = false;
      for (std::size_t list = 0; list < lists_.size(); ++list)
        if (next_[list] < lists_[list].size()) has_moved |= advance(list);
    }
    Program program = program_;
    for (std::size_t list = 0; list < lists_.size(); ++list)
      program.lists[list] = relisted(out_[list]);
    return program;
  }

 private:
  bool advance(std::size_t list) {
    const NamedOp& op = lists_[list][next_[list]];
    if (op.awaited >= 0) {
      const Op& target = lists_[list][static_cast<std::size_t>(op.awaited)].op;
      if (target.kind == OpKind::kPostRecv && !sent_.contains(target.transfer)) return false;
    }
    ++next_[list];
    if (op.op.kind == OpKind::kPostRecv) return true;
    out_[list].push_back(op);
    if (op.op.kind != OpKind::kSend) return true;
    sent_.insert(op.op.transfer);
    const Transfer& transfer = program_.transfers[static_cast<std::size_t>(op.op.transfer)];
    const auto to = static_cast<std::size_t>(transfer.to.value);
    out_[to].push_back(*std::ranges::find_if(lists_[to], [&](const NamedOp& other) {
      return other.op.kind == OpKind::kPostRecv && other.op.transfer == op.op.transfer;
    }));
    return true;
  }

  const Program& program_;
  std::vector<std::vector<NamedOp>> lists_;
  std::vector<std::size_t> next_;
  std::vector<std::vector<NamedOp>> out_;
  std::set<int> sent_;
};

struct Placed {
  std::string name;
  Program program;
};

std::vector<Placed> placed_programs() {
  std::vector<Placed> all;
  for (const pipeline::CatalogRow& row : pipeline::catalog())
    for (int p = 1; p <= 3; ++p)
      for (int v = 1; v <= 2; ++v)
        for (int m = 1; m <= 3; ++m) {
          const Result<pipeline::Schedule> schedule = row.build({p, v, m});
          if (!schedule.ok()) continue;
          const int stages = p * v;
          const Program program =
              lower(*schedule,
                    {.stage_begin = split_units(std::max(2, stages), stages), .tied = m % 2 == 1})
                  .value();
          const std::string name = std::string(row.name) + " p" + std::to_string(p) + " v" +
                                   std::to_string(v) + " m" + std::to_string(m);
          all.push_back({name + " lowered", program});
          all.push_back({name + " naive", naive(program)});
          all.push_back({name + " projected", Projection(program).take()});
        }
  return all;
}

struct Tally {
  int programs = 0, cases = 0, ends = 0;
  std::size_t states = 0;
};

// Levels at which the program ends, by both ways.
std::string agreed_levels(const Program& program, Tally& tally) {
  std::string levels;
  ++tally.programs;
  for (const Transport transport : kTransports) {
    Explorer explorer(program, transport);
    const Result<void> sorted = check_deadlock(program, transport);
    EXPECT_EQ(explorer.all_end(), sorted.ok())
        << to_text(transport) << "\n"
        << to_text(program) << (sorted.ok() ? "" : sorted.error().message);
    levels += sorted.ok() ? "AbBDC"[static_cast<int>(transport)] : '.';
    ++tally.cases;
    tally.ends += sorted.ok();
    tally.states += explorer.num_states();
  }
  return levels;
}

std::ostream& operator<<(std::ostream& out, const Tally& tally) {
  return out << tally.programs << " programs, " << tally.cases << " cases, " << tally.ends
             << " end, " << tally.cases - tally.ends << " do not, " << tally.states << " states\n";
}

TEST(Interleavings, OfEveryScheduleAreDecidedByOneSort) {
  Tally tally;
  for (const Placed& placed : placed_programs()) {
    SCOPED_TRACE(placed.name);
    const std::string levels = agreed_levels(placed.program, tally);
    const std::string promised = placed.name.ends_with("projected") ? "AbBDC"
                                 : placed.name.ends_with("lowered") ? "DC"
                                                                    : "";
    EXPECT_TRUE(levels.ends_with(promised)) << levels;
  }
  std::cout << tally;
}

// What check_deadlock requires, and no Wait before its op.
bool is_askable(const Program& program) {
  for (std::size_t list = 0; list < program.lists.size(); ++list)
    for (std::size_t i = 0; i < program.lists[list].size(); ++i) {
      const Op& op = program.lists[list][i];
      if (op.kind == OpKind::kWait && op.target >= static_cast<int>(i)) return false;
      if (!is_transfer(op.kind)) continue;
      const Transfer& transfer = program.transfers[static_cast<std::size_t>(op.transfer)];
      const Coord end = op.kind == OpKind::kSend ? transfer.from : transfer.to;
      if (end.value != static_cast<int>(list)) return false;
    }
  return true;
}

// `count` mutants of each program.
void compare_mutants(int count, Dice dice) {
  Tally tally;
  for (const Placed& placed : placed_programs()) {
    if (placed.program.transfers.empty()) continue;
    SCOPED_TRACE(placed.name);
    for (int made = 0; made < count;) {
      const auto kind = static_cast<Spoil>(made % kNumSpoils);
      const bool keeps_group = kind != Spoil::kRetarget;
      const auto may_touch = [&](Coord coord, const Op& op) {
        if (op.kind == OpKind::kWait)
          return is_transfer(placed.program.list(coord)[static_cast<std::size_t>(op.target)].kind);
        const bool is_joint = op.kind == OpKind::kNorm || op.kind == OpKind::kReduceTied;
        return is_transfer(op.kind) || (keeps_group && is_joint);
      };
      const Program mutant = Spoiler(placed.program, dice).spoil(kind, may_touch);
      if (!is_askable(mutant)) continue;
      agreed_levels(mutant, tally);
      ++made;
    }
  }
  std::cout << tally;
}

TEST(Interleavings, OfMutantsAreDecidedByOneSort) { compare_mutants(5, Dice(3)); }
TEST(InterleavingsLong, OfMoreMutantsAreDecidedByOneSort) { compare_mutants(60, Dice(4)); }

}  // namespace
}  // namespace lockstep::program

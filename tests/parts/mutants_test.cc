// Lists with one thing wrong. Each is refused by the validator, or computes other numbers, or is
// proved to make no difference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"
#include "lockstep/parts/validate.h"
#include "tests/parts/rig.h"

namespace lockstep::parts {
namespace {

struct Mutant {
  std::string what;
  Pass pass;
  bool is_equivalent = false;  // by the reason in `what`
};

// Whether two neighbours may change places: neither writes what the other touches.
bool commute(const Pass& pass, const Part& a, const Part& b) {
  const auto writes = [&](const Part& part, const Part& other) {
    const auto meets = [&](ValueId mine, const std::vector<ValueId>& theirs) {
      return std::ranges::any_of(theirs, [&](ValueId id) {
        return overlap(pass.places[static_cast<std::size_t>(mine)],
                       pass.places[static_cast<std::size_t>(id)]);
      });
    };
    // Behind its wait a collective has written.
    const bool waits = part.kind == Kind::kWait;
    return std::ranges::any_of(waits ? std::vector{part.in[0]} : part.out, [&](ValueId id) {
      return meets(id, other.in) || meets(id, other.out);
    });
  };
  // Gradients of different parameters lie apart; ends at either are behind both.
  return !writes(a, b) && !writes(b, a);
}

class Mutation {
 public:
  Mutation(const UnitPasses& unit, UnitPass name) : unit_(unit), pass_(unit.at(name)) {}

  std::vector<Mutant> all() {
    for (std::size_t i = 0; i < pass_.parts.size(); ++i) {
      drop(i);
      twice(i);
      swap(i);
      // What a wait names besides the output only lives until then: other_end().
      const bool waits = pass_.parts[i].kind == Kind::kWait;
      for (std::size_t k = 0; k < (waits ? 1 : pass_.parts[i].in.size()); ++k) other_operand(i, k);
      other_parameter(i);
      other_end(i);
      other_place(i);
    }
    return std::move(all_);
  }
  int refused_when_placed = 0;

 private:
  std::string name(std::size_t i) const { return join_parts(to_text(pass_.parts[i].kind), " ", i); }
  // A list that is placed anew, so that its memory fits it.
  void add(const std::string& what, Parts parts) {
    try {
      Pass made = place(unit_.values(), unit_.sizes(), std::move(parts), pass_.before, pass_.after,
                        pass_.places);
      made.given = pass_.given;
      made.result = pass_.result;
      all_.push_back({what, std::move(made)});
    } catch (const BrokenInvariant&) {
      ++refused_when_placed;
    }
  }

  void drop(std::size_t i) {
    Parts parts = pass_.parts;
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i));
    add("without " + name(i), std::move(parts));
  }
  void twice(std::size_t i) {
    Parts parts = pass_.parts;
    parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(i), pass_.parts[i]);
    add("twice " + name(i), std::move(parts));
  }
  void swap(std::size_t i) {
    if (i + 1 == pass_.parts.size()) return;
    Mutant mutant{"swapped with the next: " + name(i), pass_};
    std::swap(mutant.pass.parts[i], mutant.pass.parts[i + 1]);
    // What ends behind the first ends behind both.
    auto& ends = mutant.pass.ends;
    ends[i + 1].insert(ends[i + 1].end(), ends[i].begin(), ends[i].end());
    ends[i].clear();
    mutant.is_equivalent = commute(pass_, pass_.parts[i], pass_.parts[i + 1]);
    all_.push_back(std::move(mutant));
  }
  // Any that is alike in shape and was made before.
  void other_operand(std::size_t i, std::size_t k) {
    const ValueId right = pass_.parts[i].in[k];
    std::vector<ValueId> made = pass_.before;
    for (std::size_t j = 0; j < i; ++j)
      made.insert(made.end(), pass_.parts[j].out.begin(), pass_.parts[j].out.end());
    for (const ValueId id : made) {
      const Value& a = unit_.values()[id];
      const Value& b = unit_.values()[right];
      if (id == right || a.dims != b.dims || a.elem != b.elem) continue;
      Parts parts = pass_.parts;
      parts[i].in[k] = id;
      add(join_parts(name(i), " reads ", a.name, " for ", b.name), std::move(parts));
    }
  }
  bool is_unread(std::size_t i) const {
    const ValueId made = pass_.parts[i].out[0];
    const auto reads = [&](const Part& part) { return std::ranges::count(part.in, made) > 0; };
    return std::ranges::none_of(pass_.parts, reads) && std::ranges::count(pass_.after, made) == 0;
  }
  void other_parameter(std::size_t i) {
    for (const Part& other : pass_.parts) {
      if (pass_.parts[i].param.empty() || other.param == pass_.parts[i].param) continue;
      if (other.kind != pass_.parts[i].kind) continue;
      Parts parts = pass_.parts;
      parts[i].param = other.param;
      add(join_parts(name(i), " with ", other.param), parts);
      // Reads none; or statistics alone are wanted, which no gain changes.
      if (parts[i].kind == Kind::kBiasSum || (!parts[i].out.empty() && is_unread(i)))
        all_.back().is_equivalent = true;
    }
  }
  void other_end(std::size_t i) {
    for (const ValueId storage : pass_.ends[i]) {
      const auto without = [&](std::size_t at) {
        Mutant mutant{join_parts("end of ", unit_.values()[storage].name, " behind part ", at),
                      pass_};
        std::erase(mutant.pass.ends[i], storage);
        if (at < mutant.pass.ends.size()) mutant.pass.ends[at].push_back(storage);
        return mutant;
      };
      if (i > 0) all_.push_back(without(i - 1));
      all_.push_back(without(pass_.parts.size()));  // never
      if (i + 1 == pass_.parts.size()) continue;
      Mutant late = without(i + 1);
      late.is_equivalent = true;  // but for memory, of which the lists tell
      all_.push_back(std::move(late));
    }
  }
  // An output overwrites another value of its size.
  void other_place(std::size_t i) {
    for (const ValueId out : pass_.parts[i].out)
      for (const ValueId victim : pass_.before) {
        const Place& at = pass_.places[static_cast<std::size_t>(victim)];
        const bool fits = at.slice < 0 && unit_.sizes().elements(unit_.values()[out]) ==
                                              unit_.sizes().elements(unit_.values()[victim]);
        if (!fits || pass_.storage(out) == at.storage) continue;
        Mutant mutant{
            join_parts(unit_.values()[out].name, " in place of ", unit_.values()[victim].name),
            pass_};
        mutant.pass.places[static_cast<std::size_t>(out)] = at;
        all_.push_back(std::move(mutant));
      }
  }

  const UnitPasses& unit_;
  const Pass& pass_;
  std::vector<Mutant> all_;
};

bool computes_the_same(const Rig& rig, UnitPass name, const Pass& mutant,
                       const std::vector<Named>& want) {
  const bool at_once = name == UnitPass::kBackward || name == UnitPass::kFirstBackward;
  const UnitPass where = name == UnitPass::kFirstBackward ? UnitPass::kBackward : name;
  try {
    return rig.gradients(at_once, name == UnitPass::kRecompute, {{where, mutant}}) == want;
  } catch (const std::exception&) {  // sizes that do not fit
    return false;
  }
}

TEST(Mutants, AreCaughtOrProvedToMakeNoDifference) {
  // Of those that are not refused.
  const int every = std::getenv("LOCKSTEP_ALL_MUTANTS") != nullptr ? 1 : 10;
  int made = 0, refused = 0, left = 0, caught = 0, equivalent = 0, run = 0;
  for (const int traits : {0, 4, 8, 27, kOlmo2, kGemma2, kDense + 9})  // llama, qwen3, qwen2, gpt2
    for (const Ways& ways : ways_of(traits))
      for (const DType dtype : {DType::kF64, DType::kBF16}) {
        const Rig rig(config_of(traits),
                      sizes_of(traits, ways, dtype, traits == 0 ? 0b1010011 : 0));
        const std::vector<Named> want = rig.gradients(true, false);
        for (const UnitPass name :
             {UnitPass::kForward, UnitPass::kRecompute, UnitPass::kInputGrad, UnitPass::kWeightGrad,
              UnitPass::kBackward, UnitPass::kFirstBackward}) {
          Mutation mutation(rig.passes, name);
          const std::vector<Mutant> mutants = mutation.all();
          made += static_cast<int>(mutants.size()) + mutation.refused_when_placed;
          refused += mutation.refused_when_placed;
          for (const Mutant& mutant : mutants) {
            if (!validate(mutant.pass, rig.passes.values()).empty()) {
              ++refused;
              EXPECT_FALSE(mutant.is_equivalent) << mutant.what;
              continue;
            }
            if (++left % every != 0) continue;
            ++run;
            const bool same = computes_the_same(rig, name, mutant.pass, want);
            EXPECT_EQ(same, mutant.is_equivalent)
                << kUnitPasses.name_of(name) << " traits " << traits << " tp " << ways.text()
                << ": " << mutant.what;
            ++(same ? equivalent : caught);
          }
        }
      }
  std::printf(
      "%d lists with one thing wrong: %d refused, %d run, of which %d computed other "
      "numbers and %d were proved to compute the same\n",
      made, refused, run, caught, equivalent);
  EXPECT_GT(caught, 100);
}

}  // namespace
}  // namespace lockstep::parts

// Every mutant of the tested programs runs for real on threads, also those that the validator
// rejects, and is noticed or proven to change nothing. A sample of each kind of fault by default;
// all of them with LOCKSTEP_ALL_MUTANTS=1 in the environment.
#include "tests/support/mutants.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "lockstep/program/deadlock.h"
#include "lockstep/program/op_table.h"
#include "lockstep/program/validate.h"
#include "lockstep/verify/verify.h"
#include "tests/train/equivalents.h"
#include "tests/train/small.h"

namespace lockstep::train {
namespace {

using program::Mutant;
using program::MutantKind;
using program::OpKind;
using program::Program;

// A mutant that hangs costs this long. On a slow machine a sound run might take longer, so where
// there is reason to think that one is sound, it gets a second chance with the longer one.
constexpr Seconds kMutantDeadline = {0.5};
constexpr Seconds kLongDeadline = {60.0};
constexpr int kWorkers = 12;  // most of them wait for a deadline

struct Tried {
  bool tied;
  const char* layout;
  int layers = 2;
};
// Every stage of ZeRO with and without a pipeline, tied weights, replicas, recompute, both periods,
// tensor ranks; together every kind of op and value.
constexpr Tried kTried[] = {
    {true, "dp2 zero0 m2 step"},
    {false, "dp2 zero0 m4 mb"},
    {true, "dp2 zero1 m2 step"},
    {false, "dp2 zero2 m2 mb"},
    {true, "dp2 zero3 m2 mb recompute=full"},
    {false, "dp2 zero3 m2 step"},
    {false, "dp2x2 zero1 m2 step recompute=full"},
    {true, "dp2x2 zero2 m2 mb"},
    {false, "dp2x2 zero3 m2 mb"},
    {false, "pp2 dp1 zero0 1f1b m2 step"},
    {true, "pp2 dp1 zero0 zb-h1 m4 step"},
    {true, "pp2 dp2 zero1 1f1b m2 step"},
    {false, "pp2 dp2 zero2 1f1b m2 mb recompute=full"},
    {true, "pp2 dp2 zero3 1f1b m2 mb"},
    {true, "pp2 dp2x2 zero3 1f1b m2 mb"},
    {false, "tp2 dp1 zero0 m2 step"},
    {true, "tp2 dp2 zero2 nosp m2 mb"},
    {false, "tp2 dp2 zero3 m2 mb"},
    {true, "tp2 pp2 dp1 zero0 zb-h1 m4 step"},
    {true, "pp2 dp2 zero1 zbv vpp2 m3 step", 4},
    {true, "pp2 dp2 zero3 interleaved-zb vpp2 m2 mb recompute=full", 4},
};

// One mutant for each coordinate, kind of op, kind of fault and new group, another of them in turn.
std::vector<Mutant> sampled(const Job& job, std::vector<Mutant> all) {
  if (std::getenv("LOCKSTEP_ALL_MUTANTS") != nullptr) return all;
  std::map<std::tuple<Coord, OpKind, OpKind, MutantKind, program::CommGroup>,
           std::vector<std::size_t>>
      alike;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Mutation m{job, all[i]};
    const bool is_group = all[i].kind == MutantKind::kGroup;
    alike[{all[i].coord, m.op().kind, m.acting().kind, all[i].kind,
           is_group ? m.group() : program::CommGroup::kNone}]
        .push_back(i);
  }
  std::vector<Mutant> chosen;
  for (const auto& [key, indices] : alike)
    chosen.push_back(std::move(all[indices[chosen.size() % indices.size()]]));
  return chosen;
}

struct Counts {
  int made = 0;
  std::map<bool, std::map<verify::FailureKind, int>> by_validity;  // of the mutant
  std::map<MutantKind, std::map<verify::FailureKind, int>> by_kind;
  std::map<std::string, int> equivalent;  // by reason
  std::set<OpKind> ops;
};

// Tries mutants of one program, from several threads.
class Trials {
 public:
  Trials(const verify::Verifier& verifier, const spec::Layout& layout, const Job& job,
         Counts& counts)
      : verifier_(verifier), layout_(layout), job_(job), counts_(counts) {}

  void run(const std::vector<Mutant>& mutants) {
    std::atomic<std::size_t> next = 0;
    std::vector<std::thread> workers;
    for (int i = 0; i < kWorkers; ++i)
      workers.emplace_back([&] {
        for (std::size_t at = next++; at < mutants.size(); at = next++) run(mutants[at]);
      });
    for (std::thread& worker : workers) worker.join();
  }

 private:
  void run(const Mutant& mutant) {
    Mutation mutation{job_, mutant};
    mutation.is_valid = program::validate(mutant.program, 1).empty() &&
                        program::check_deadlock(mutant.program, program::Transport::kTagged).ok();
    const Equivalence* rule = std::ranges::find_if(
        kEquivalences, [&](const Equivalence& e) { return e.holds(mutation); });
    const bool is_proven = rule != std::end(kEquivalences);
    verify::Verdict verdict = verifier_.check_fault(layout_, {mutant.program}, kMutantDeadline);
    if (verdict.failure_kind == verify::FailureKind::kCommunication &&
        (is_proven || mutation.is_valid))
      verdict = verifier_.check_fault(layout_, {mutant.program}, kLongDeadline);
    // What a job says about itself is made from its program, so it is no evidence against it.
    if (verdict.failure_kind == verify::FailureKind::kPrediction)
      verdict.failure_kind = verify::FailureKind::kNothing;
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(verdict.failure_kind == verify::FailureKind::kNothing, is_proven)
        << to_text(layout_) << ", " << mutant.what
        << (is_proven ? join_parts(" should make no difference, as it ", rule->reason)
                      : std::string(" is neither noticed nor proven to make no difference"))
        << "\n"
        << verdict.failure;
    EXPECT_TRUE(is_proven || !mutation.is_valid) << mutant.what << " passes the validator";
    count(mutation, verdict.failure_kind, is_proven ? rule->reason : "");
  }

  void count(const Mutation& mutation, verify::FailureKind failure_kind, std::string_view reason) {
    ++counts_.made;
    ++counts_.by_validity[mutation.is_valid][failure_kind];
    ++counts_.by_kind[mutation.mutant.kind][failure_kind];
    counts_.ops.insert(mutation.op().kind);
    if (reason.empty()) return;
    const bool is_wait = mutation.op().kind == OpKind::kWait;
    ++counts_.equivalent[join_parts(reason, ": ", is_wait ? "wait of " : "",
                                    op_row(mutation.acting().kind).token, ", ",
                                    to_text(mutation.mutant.kind))];
  }

  const verify::Verifier& verifier_;
  const spec::Layout& layout_;
  const Job& job_;
  Counts& counts_;
  std::mutex mutex_;
};

template <class Key, class Name>
void print(const std::map<Key, std::map<verify::FailureKind, int>>& table, Name name) {
  std::cout << std::left << std::setw(12) << "";
  for (int i = 0; i < verify::kNumFailureKinds; ++i)
    std::cout << std::right << std::setw(15) << to_text(static_cast<verify::FailureKind>(i));
  std::cout << "\n";
  for (const auto& [key, row] : table) {
    std::cout << std::left << std::setw(12) << name(key) << std::right;
    for (int i = 0; i < verify::kNumFailureKinds; ++i) {
      const auto found = row.find(static_cast<verify::FailureKind>(i));
      std::cout << std::setw(15) << (found == row.end() ? 0 : found->second);
    }
    std::cout << "\n";
  }
}

void print(const Counts& counts) {
  std::cout << counts.made << " mutants of " << std::size(kTried)
            << " programs, by the validator and by what a run noticed:\n";
  print(counts.by_validity, [](bool is_valid) { return is_valid ? "accepted" : "rejected"; });
  print(counts.by_kind, [](MutantKind kind) { return program::to_text(kind); });
  int equivalent = 0;
  for (const auto& [reason, count] : counts.equivalent) {
    std::cout << "  " << count << " x " << reason << "\n";
    equivalent += count;
  }
  std::cout << counts.made - equivalent << " caught, " << equivalent
            << " proven to make no difference\n";
}

TEST(MutantRuns, AreNoticedOrProvenToMakeNoDifference) {
  Counts counts;
  for (const auto& [tied, layers] : {std::pair(false, 2), std::pair(true, 2), std::pair(true, 4)}) {
    spec::Spec spec = small_spec(tied);
    spec.model.layers = layers;
    spec.batch.global_batch = layers == 2 ? 16 : 12;
    auto verifier = verify::Verifier::create(spec, 2);
    ASSERT_TRUE(verifier.ok()) << verifier.error().message;
    for (const Tried& tried : kTried) {
      if (tried.tied != tied || tried.layers != layers) continue;
      SCOPED_TRACE(tried.layout);
      const auto layout = spec::parse_layout(tried.layout);
      ASSERT_TRUE(layout.ok()) << layout.error().message;
      const auto sound = verifier->check(*layout);
      ASSERT_TRUE(sound.ok()) << sound.error().message;
      ASSERT_TRUE(sound->ok()) << sound->failure;
      const Job job = *verifier->job(*layout);
      Trials(*verifier, *layout, job, counts).run(sampled(job, program::mutants(job.program)));
    }
  }
  print(counts);
  EXPECT_GE(counts.made, 200);
  EXPECT_EQ(counts.by_kind.size(), static_cast<std::size_t>(program::kNumMutantKinds));
  EXPECT_EQ(counts.ops.size(), static_cast<std::size_t>(program::kNumOpKinds));
  for (const verify::FailureKind failure_kind :
       {verify::FailureKind::kInvariant, verify::FailureKind::kCommunication,
        verify::FailureKind::kReplicas, verify::FailureKind::kNumbers, verify::FailureKind::kBits})
    EXPECT_GT(counts.by_validity[false][failure_kind], 0) << to_text(failure_kind);
}

}  // namespace
}  // namespace lockstep::train

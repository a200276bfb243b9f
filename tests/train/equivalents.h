// Mutants of a program that change nothing a run could show, each rule with its proof. A rule must
// be so tight that it is an error if a run notices a mutant for which it speaks.
#pragma once

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/program/effects.h"
#include "lockstep/train/job.h"
#include "tests/program/formulas.h"
#include "tests/support/mutants.h"

namespace lockstep::train {

// A program, sound, and one of its mutants.
struct Mutation {
  const Job& job;
  const program::Mutant& mutant;
  bool is_valid = false;  // neither validator nor deadlock check object

  const program::Op& op() const { return list()[static_cast<std::size_t>(mutant.op)]; }
  // What a Wait waits for, else the op itself.
  const program::Op& acting() const {
    return op().kind == program::OpKind::kWait ? list()[static_cast<std::size_t>(op().target)]
                                               : op();
  }
  program::CommGroup group() const {
    return mutant.program.list(mutant.coord)[static_cast<std::size_t>(mutant.op)].group;
  }

 private:
  const std::vector<program::Op>& list() const { return job.program.list(mutant.coord); }
};

// The program's formulas (tests/program/formulas.h) are the same: every value that outlives the
// step or leaves the coordinate is made by the same ops from the same values. So its bits are the
// same wherever the list runs to its end, which the validator and the deadlock check promise.
inline bool computes_the_same(const Mutation& m) {
  const Coord coord = m.mutant.coord;
  return m.is_valid && program::Formulas(m.mutant.program, coord).results() ==
                           program::Formulas(m.job.program, coord).results();
}

// A second wait for a finished receive, gather or sum over the tensor group: a Work is
// waited for once and then empty, and the Wait of these ops has no effects of its own (effects.cc).
// Waits of sends and other reductions have, and break an invariant the second time.
inline bool waits_again_for_nothing(const Mutation& m) {
  using program::OpKind;
  const OpKind kind = m.acting().kind;
  return m.op().kind == OpKind::kWait && m.mutant.kind == program::MutantKind::kDouble &&
         (kind == OpKind::kPostRecv || kind == OpKind::kGather ||
          kind == OpKind::kAllGatherUpdated || kind == OpKind::kReduceReplicated);
}

// Counting again gives the same number: tokens are counted anew from the samples, not added.
inline bool counts_again(const Mutation& m) {
  return m.op().kind == program::OpKind::kCount && m.mutant.kind == program::MutantKind::kDouble;
}

// Both copies of the tied weight are on this coordinate: they are added in place, nobody is met.
inline bool meets_nobody_for_tied(const Mutation& m) {
  const program::StepShape& step = m.job.program.step;
  return m.op().kind == program::OpKind::kReduceTied &&
         m.mutant.kind == program::MutantKind::kGroup && step.holds(m.mutant.coord, 0) &&
         step.holds(m.mutant.coord, step.head());
}

// One communicator that an op meets: ranks, and whether it joins pipeline coordinates, whose other
// members keep their own lists and so must be met on the very same communicator.
struct Party {
  std::string_view across;  // "": all members have this coordinate
  std::vector<int> ranks;
  bool operator==(const Party&) const = default;
};

// In order; groups of one do nothing and are left out.
inline std::vector<Party> parties(const Job& job, Rank rank, program::CommGroup group) {
  using program::CommGroup;
  const auto along = [&](std::string_view across, mesh::AxisSet axes) {
    Party party{across, {}};
    for (const Rank member : job.mesh.group(rank, axes).ranks())
      party.ranks.push_back(member.value);
    return party;
  };
  std::vector<Party> all;
  switch (group) {
    case CommGroup::kNone:
    case CommGroup::kSelf:
      break;
    case CommGroup::kShard:
      all = {along("", mesh::kDenseShard)};
      break;
    case CommGroup::kReplicate:
      all = {along("", mesh::Axis::kDataReplicate)};
      break;
    case CommGroup::kData:
      all = {along("", mesh::kData)};
      break;
    case CommGroup::kPipeline:
    case CommGroup::kPeer:
      all = {along("pipeline", mesh::Axis::kPipeline)};
      break;
    case CommGroup::kDataThenPipeline:
      all = {along("", mesh::kData), along("pipeline", mesh::Axis::kPipeline)};
      break;
    case CommGroup::kTensor:
      all = {along("", mesh::Axis::kTensor)};
      break;
    case CommGroup::kDataTensorPipeline:
      all = {along("", mesh::kData), along("", mesh::Axis::kTensor),
             along("pipeline", mesh::Axis::kPipeline)};
      break;
    case CommGroup::
        kTied:  // first and last stage: all of them where there are two, as in these tests
      if (job.model.config.tied) all = {along("tied", mesh::Axis::kPipeline)};
      break;
    case CommGroup::kExpertShard:
      all = {along("", mesh::Axis::kExpertDataShard)};
      break;
    case CommGroup::kExpertReplicate:
      all = {along("", mesh::Axis::kExpertDataReplicate)};
      break;
    case CommGroup::kExpertData:
      all = {along("", mesh::kExpertData)};
      break;
  }
  std::erase_if(all, [](const Party& party) { return party.ranks.size() == 1; });
  return all;
}

// Asynchronous ops need exactly one communicator, be it of one rank.
inline bool is_one_communicator(const Job& job, program::CommGroup group) {
  using program::CommGroup;
  if (group == CommGroup::kTied) return job.model.config.tied && job.program.step.shape.coords > 1;
  if (group == CommGroup::kTensor) return job.mesh.degree(mesh::Axis::kTensor) > 1;
  return group != CommGroup::kNone && group != CommGroup::kDataThenPipeline &&
         group != CommGroup::kDataTensorPipeline;
}

// The other group has the same members in the same order on every rank of the coordinate, so the
// same sums and copies are made. All of them run the same list, so their calls match on the other
// communicator as they did on the first.
inline bool meets_the_same_ranks(const Mutation& m) {
  if (m.mutant.kind != program::MutantKind::kGroup) return false;
  if (is_async(m.op().kind) && !is_one_communicator(m.job, m.group())) return false;
  for (int rank = 0; rank < m.job.mesh.world(); ++rank)
    if (m.job.place({rank}).coord == m.mutant.coord &&
        parties(m.job, {rank}, m.group()) != parties(m.job, {rank}, m.op().group))
      return false;
  return true;
}

struct Equivalence {
  std::string_view reason;
  bool (*holds)(const Mutation&);
};
inline constexpr Equivalence kEquivalences[] = {
    {"computes the same formulas", computes_the_same},
    {"waits again for what is complete", waits_again_for_nothing},
    {"counts the same tokens again", counts_again},
    {"adds both tied copies in place, whomever it could meet", meets_nobody_for_tied},
    {"meets the same ranks by another name", meets_the_same_ranks},
};

}  // namespace lockstep::train

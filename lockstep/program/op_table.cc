#include "lockstep/program/op_table.h"

#include <array>

#include "lockstep/base/check.h"

namespace lockstep::program {
namespace {

constexpr std::uint8_t kUnit = 1, kMicrobatch = 2, kPeriod = 4, kTransfer = 8, kTarget = 16;
constexpr bool kAsync = true;

constexpr std::array<OpRow, kNumOpKinds> kRows = {{
    {OpKind::kLoad, "load", "load", {kMicrobatch}, Lane::kHost},
    {OpKind::kCount, "count", "count of valid tokens", {}, Lane::kCollective},
    {OpKind::kForward, "F", "F", {kUnit | kMicrobatch}, Lane::kCompute},
    {OpKind::kRecompute, "R", "R", {kUnit | kMicrobatch}, Lane::kCompute},
    {OpKind::kBackward, "B", "B", {kUnit | kMicrobatch}, Lane::kCompute},
    {OpKind::kInputGrad, "I", "I", {kUnit | kMicrobatch}, Lane::kCompute},
    {OpKind::kWeightGrad, "W", "W", {kUnit | kMicrobatch}, Lane::kCompute},
    {OpKind::kSend, "send", "send", {kTransfer}, Lane::kSend, kAsync},
    {OpKind::kPostRecv, "recv", "receive", {kTransfer}, Lane::kRecv, kAsync},
    {OpKind::kGather, "gather", "gather", {kUnit}, Lane::kCollective, kAsync},
    {OpKind::kFree, "free", "free", {kUnit}, Lane::kCompute},
    {OpKind::kReduce, "reduce", "reduce", {kUnit | kPeriod}, Lane::kCollective, kAsync},
    {OpKind::kReduceAcross,
     "across",
     "reduce across replicas",
     {kUnit | kPeriod},
     Lane::kCollective,
     kAsync},
    {OpKind::kReduceTied, "tied", "tied reduction", {}, Lane::kCollective},
    {OpKind::kNorm, "norm", "norm", {}, Lane::kCollective},
    {OpKind::kUpdate, "update", "update", {kUnit}, Lane::kCompute},
    {OpKind::kAllGatherUpdated,
     "allgather",
     "all-gather of updated parameters",
     {kUnit},
     Lane::kCollective,
     kAsync},
    {OpKind::kWait, "wait", "wait", {kTarget}, Lane::kHost},
    {OpKind::kReduceReplicated,
     "replicated",
     "reduce replicated parameters",
     {kUnit},
     Lane::kCollective,
     kAsync},
}};

constexpr bool rows_follow_kinds() {
  for (std::size_t i = 0; i < kRows.size(); ++i)
    if (static_cast<std::size_t>(kRows[i].kind) != i) return false;
  return true;
}
static_assert(rows_follow_kinds());

constexpr std::string_view kCommGroupNames[kNumCommGroups] = {"none",
                                                              "self",
                                                              "shard",
                                                              "replicate",
                                                              "data",
                                                              "pipeline",
                                                              "data_then_pipeline",
                                                              "tied",
                                                              "peer",
                                                              "tensor",
                                                              "data_tensor_pipeline",
                                                              "expert_shard",
                                                              "expert_replicate",
                                                              "expert_data"};
static_assert(static_cast<int>(CommGroup::kExpertData) + 1 == kNumCommGroups);

}  // namespace

const OpRow& op_row(OpKind kind) { return kRows[static_cast<std::size_t>(kind)]; }

OpKind op_kind(pipeline::PassKind kind) {
  using pipeline::PassKind;
  switch (kind) {
    case PassKind::kForward:
      return OpKind::kForward;
    case PassKind::kBackward:
      return OpKind::kBackward;
    case PassKind::kInputGrad:
      return OpKind::kInputGrad;
    case PassKind::kWeightGrad:
      return OpKind::kWeightGrad;
  }
  LS_CHECK(false, "pass of kind ", static_cast<int>(kind));
}

CommGroup usual_group(const StepShape& step, const Op& op) {
  const bool experts = step.is_experts(op.unit);
  const CommGroup shard = experts ? CommGroup::kExpertShard : CommGroup::kShard;
  switch (op.kind) {
    case OpKind::kCount:
      return CommGroup::kData;
    case OpKind::kSend:
    case OpKind::kPostRecv:
      return CommGroup::kPeer;
    case OpKind::kGather:
    case OpKind::kAllGatherUpdated:
      return shard;
    case OpKind::kReduce:
      if (step.zero > 0) return shard;
      return experts ? CommGroup::kExpertData : CommGroup::kData;
    case OpKind::kReduceAcross:
      return experts ? CommGroup::kExpertReplicate : CommGroup::kReplicate;
    case OpKind::kReduceReplicated:
      return CommGroup::kTensor;
    case OpKind::kReduceTied:
      return CommGroup::kTied;
    case OpKind::kNorm:
      return step.tensor_parallel ? CommGroup::kDataTensorPipeline : CommGroup::kDataThenPipeline;
    default:
      return CommGroup::kNone;
  }
}

std::string_view to_text(CommGroup group) {
  return kCommGroupNames[static_cast<std::size_t>(group)];
}

}  // namespace lockstep::program

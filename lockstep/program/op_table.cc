#include "lockstep/program/op_table.h"

#include <array>

#include "lockstep/base/check.h"

namespace lockstep::program {
namespace {

//                             unit mb period transfer target
constexpr std::array<OpRow, kNumOpKinds> kRows = {{
    {OpKind::kLoad, "load", "load", {false, true, false, false, false}},
    {OpKind::kCount, "count", "count of valid tokens", {false, false, false, false, false}},
    {OpKind::kForward, "F", "F", {true, true, false, false, false}},
    {OpKind::kRecompute, "R", "R", {true, true, false, false, false}},
    {OpKind::kBackward, "B", "B", {true, true, false, false, false}},
    {OpKind::kInputGrad, "I", "I", {true, true, false, false, false}},
    {OpKind::kWeightGrad, "W", "W", {true, true, false, false, false}},
    {OpKind::kSend, "send", "send", {false, false, false, true, false}},
    {OpKind::kPostRecv, "recv", "receive", {false, false, false, true, false}},
    {OpKind::kGather, "gather", "gather", {true, false, false, false, false}},
    {OpKind::kFree, "free", "free", {true, false, false, false, false}},
    {OpKind::kReduce, "reduce", "reduce", {true, false, true, false, false}},
    {OpKind::kReduceAcross, "across", "reduce across replicas", {true, false, true, false, false}},
    {OpKind::kReduceTied, "tied", "tied reduction", {false, false, false, false, false}},
    {OpKind::kNorm, "norm", "norm", {false, false, false, false, false}},
    {OpKind::kUpdate, "update", "update", {true, false, false, false, false}},
    {OpKind::kPublish, "publish", "publish", {true, false, false, false, false}},
    {OpKind::kWait, "wait", "wait", {false, false, false, false, true}},
    {OpKind::kReduceReplicated,
     "replicated",
     "reduce replicated parameters",
     {true, false, false, false, false}},
}};

constexpr bool rows_follow_kinds() {
  for (std::size_t i = 0; i < kRows.size(); ++i)
    if (static_cast<std::size_t>(kRows[i].kind) != i) return false;
  return true;
}
static_assert(rows_follow_kinds());

constexpr std::string_view kReachNames[kNumReaches] = {
    "none", "self", "shard",  "replicate",           "data", "pipeline", "data_then_pipeline",
    "tied", "peer", "tensor", "data_tensor_pipeline"};
static_assert(static_cast<int>(Reach::kDataTensorPipeline) + 1 == kNumReaches);

}  // namespace

const OpRow& op_row(OpKind kind) { return kRows[static_cast<std::size_t>(kind)]; }

std::span<const OpRow> op_table() { return kRows; }

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

Reach usual_reach(const StepShape& step, OpKind kind) {
  switch (kind) {
    case OpKind::kCount:
      return Reach::kData;
    case OpKind::kSend:
    case OpKind::kPostRecv:
      return Reach::kPeer;
    case OpKind::kGather:
    case OpKind::kPublish:
      return Reach::kShard;
    case OpKind::kReduce:
      return step.zero == 0 ? Reach::kData : Reach::kShard;
    case OpKind::kReduceAcross:
      return Reach::kReplicate;
    case OpKind::kReduceReplicated:
      return Reach::kTensor;
    case OpKind::kReduceTied:
      return Reach::kTied;
    case OpKind::kNorm:
      return step.tensor_parallel ? Reach::kDataTensorPipeline : Reach::kDataThenPipeline;
    default:
      return Reach::kNone;
  }
}

std::string_view to_text(Reach reach) { return kReachNames[static_cast<std::size_t>(reach)]; }

}  // namespace lockstep::program

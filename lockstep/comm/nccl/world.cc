#include "lockstep/comm/nccl/world.h"

#include <c10/cuda/CUDAFunctions.h>
#if __has_include(<torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>)
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#else
#include <torch/csrc/distributed/c10d/nccl/ProcessGroupNCCL.hpp>
#include <torch/csrc/distributed/c10d/store/PrefixStore.hpp>
#endif

#include <algorithm>

#include "lockstep/base/check.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/c10d/process_world.h"
#include "lockstep/tensor/as_buffer.h"

namespace lockstep::comm {
namespace {

at::Tensor as_tensor(ConstBuffer b) {
  LS_CHECK(b.device.kind == DeviceKind::kCuda, "the nccl row moves device memory");
  return tensor::as_tensor({const_cast<void*>(b.data), b.count, b.dtype, b.device});
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(Membership membership, Ledger& ledger, Siblings& siblings,
                   c10::intrusive_ptr<c10d::ProcessGroupNCCL> group,
                   std::shared_ptr<ProgressBoard> board)
      : Communicator(std::move(membership), ledger, siblings),
        group_(std::move(group)),
        board_(std::move(board)),
        place_(siblings, *this) {}

 protected:
  Work start(const Operation& operation) override {
    const auto work = post(operation);
    return {
        *this,
        [this, work, op = operation.kind, deadline = operation.deadline]() -> std::optional<Ran> {
          try {
            work->wait(in_milliseconds(deadline));
          } catch (const std::exception& error) {
            fail(op, deadline, error);
          }
          return std::nullopt;
        }};
  }
  void start_abort(const CommError&) override { group_->abort(); }
  std::string backend_name() const override { return "nccl"; }

 private:
  c10::intrusive_ptr<c10d::Work> post(const Operation& op) {
    if (op.kind == OpKind::kBarrier) return group_->barrier();
    if (op.kind == OpKind::kSend || op.kind == OpKind::kRecv || op.kind == OpKind::kBroadcast) {
      std::vector<at::Tensor> message{as_tensor(op.in.count > 0 ? op.in : op.out)};
      if (op.kind == OpKind::kSend) return group_->send(message, op.peer, op.tag);
      if (op.kind == OpKind::kRecv) return group_->recv(message, op.peer, op.tag);
      c10d::BroadcastOptions options;
      options.rootRank = op.peer;
      return group_->broadcast(message, options);
    }
    at::Tensor out = as_tensor(op.out), in = as_tensor(op.in);
    if (op.kind == OpKind::kAllGather) return group_->_allgather_base(out, in);
    if (op.kind == OpKind::kReduceScatter) return group_->_reduce_scatter_base(out, in);
    LS_CHECK(op.kind == OpKind::kAllToAll);
    std::vector<std::int64_t> recv_counts = op.recv_counts, send_counts = op.send_counts;
    return group_->alltoall_base(out, in, recv_counts, send_counts);
  }

  // NCCL does not say which peer failed; the search starts at the next member.
  [[noreturn]] void fail(OpKind op, Deadline deadline, const std::exception& cause) {
    const bool late = deadline.expired();
    const Blame blame = board_->find_culprit(membership().members[(index() + 1) % size()]);
    const CommError error({late ? Code::kPeerStalled : Code::kPeerLost,
                           std::string(to_text(op)) + " on " + describe() +
                               " failed: " + blame.verdict + " (" + cause.what() + ")",
                           "restart the job from its last checkpoint"},
                          op, blame.rank);
    poison(error);
    throw error;
  }

  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
  std::shared_ptr<ProgressBoard> board_;
  const Siblings::Place place_;
};

c10::DeviceIndex own_device(const Rendezvous& rendezvous) {
  const std::optional<std::string> local = process_environment("LOCAL_RANK");
  const std::optional<int> index = local ? number_in<int>(*local) : rendezvous.rank.value;
  if (!index || *index < 0)
    throw WorldError({Code::kUnsuitableEnvironment, "LOCAL_RANK is no number: " + *local,
                      "start ranks by torchrun, or set LOCAL_RANK to a device's number"});
  return static_cast<c10::DeviceIndex>(*index % std::max<int>(1, c10::cuda::device_count()));
}

class NcclWorld final : public ProcessWorld {
 public:
  NcclWorld(const Rendezvous& rendezvous, Deadline deadline, const JoinOptions& options)
      : ProcessWorld(rendezvous, deadline, options) {
    c10::cuda::set_device(own_device(rendezvous));
  }

 private:
  std::unique_ptr<Communicator> connect_group(Membership place, Deadline deadline) override {
    auto native =
        c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(&store()->native());
    auto prefixed =
        c10::make_intrusive<c10d::PrefixStore>("group/" + place.name, std::move(native));
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = in_milliseconds(deadline);
    auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(std::move(prefixed), place.index,
                                                             place.size(), options);
    return std::make_unique<NcclCommunicator>(std::move(place), ledger(), siblings(),
                                              std::move(group), board());
  }
};

}  // namespace

Backend nccl_backend() {
  return {.name = "nccl",
          .device = DeviceKind::kCuda,
          .check = []() -> Result<void> {
            if (c10::cuda::device_count() > 0) return {};
            return Error{Code::kUnsuitableEnvironment, "no CUDA device was found",
                         "training runs on the CPU over gloo"};
          },
          .join = [](const Rendezvous& rendezvous, Deadline deadline,
                     const JoinOptions& options) -> std::unique_ptr<World> {
            return std::make_unique<NcclWorld>(rendezvous, deadline, options);
          }};
}

}  // namespace lockstep::comm

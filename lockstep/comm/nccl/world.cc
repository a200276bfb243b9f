#include "lockstep/comm/nccl/world.h"

#include <ATen/ops/from_blob.h>
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

using comm::CommError;
using comm::OpKind;
using comm::Work;

std::chrono::milliseconds in_milliseconds(Deadline deadline) {
  const double seconds = std::clamp(deadline.remaining().value, 0.001, 1e6);
  return std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds + 0.5));
}

at::Tensor as_tensor(void* data, std::int64_t count, DType dtype, Device device) {
  LS_CHECK(device.kind == DeviceKind::kCuda, "the nccl row moves device memory");
  return at::from_blob(data, {count},
                       at::TensorOptions()
                           .dtype(tensor::scalar_type_of(dtype))
                           .device(at::kCUDA, static_cast<c10::DeviceIndex>(device.index)));
}
at::Tensor as_tensor(Buffer b) { return as_tensor(b.data, b.count, b.dtype, b.device); }
at::Tensor as_tensor(ConstBuffer b) {
  return as_tensor(const_cast<void*>(b.data), b.count, b.dtype, b.device);
}

class NcclCommunicator final : public comm::Communicator {
 public:
  NcclCommunicator(comm::Membership membership, comm::Ledger& ledger, comm::Siblings& siblings,
                   c10::intrusive_ptr<c10d::ProcessGroupNCCL> group,
                   std::shared_ptr<ProgressBoard> board)
      : Communicator(std::move(membership), ledger, siblings),
        group_(std::move(group)),
        board_(std::move(board)),
        place_(siblings, *this) {}

 protected:
  Work start_all_gather(ConstBuffer in, Buffer out, Deadline deadline) override {
    at::Tensor target = as_tensor(out), source = as_tensor(in);
    return follow(OpKind::kAllGather, deadline, group_->_allgather_base(target, source));
  }
  Work start_reduce_scatter(ConstBuffer in, Buffer out, Deadline deadline) override {
    at::Tensor target = as_tensor(out), source = as_tensor(in);
    return follow(OpKind::kReduceScatter, deadline, group_->_reduce_scatter_base(target, source));
  }
  Work start_all_to_all(ConstBuffer in, std::vector<std::int64_t> send_counts, Buffer out,
                        std::vector<std::int64_t> recv_counts, Deadline deadline) override {
    at::Tensor target = as_tensor(out), source = as_tensor(in);
    return follow(OpKind::kAllToAll, deadline,
                  group_->alltoall_base(target, source, recv_counts, send_counts));
  }
  Work start_send(ConstBuffer data, int to, int tag, Deadline deadline) override {
    std::vector<at::Tensor> message{as_tensor(data)};
    return follow(OpKind::kSend, deadline, group_->send(message, to, tag));
  }
  Work start_recv(Buffer data, int from, int tag, Deadline deadline) override {
    std::vector<at::Tensor> message{as_tensor(data)};
    return follow(OpKind::kRecv, deadline, group_->recv(message, from, tag));
  }
  Work start_broadcast(Buffer data, int root, Deadline deadline) override {
    std::vector<at::Tensor> message{as_tensor(data)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return follow(OpKind::kBroadcast, deadline, group_->broadcast(message, options));
  }
  Work start_barrier(Deadline deadline) override {
    return follow(OpKind::kBarrier, deadline, group_->barrier());
  }
  void start_abort(const CommError&) override { group_->abort(); }
  std::string backend_name() const override { return "nccl"; }

 private:
  class NcclWork final : public comm::Pending {
   public:
    NcclWork(NcclCommunicator& owner, OpKind op, Deadline deadline,
             c10::intrusive_ptr<c10d::Work> work)
        : owner_(owner), op_(op), deadline_(deadline), work_(std::move(work)) {}
    void wait() override {
      try {
        work_->wait(in_milliseconds(deadline_));
      } catch (const std::exception& error) {
        owner_.fail(op_, deadline_, error);
      }
    }

   private:
    NcclCommunicator& owner_;
    OpKind op_;
    Deadline deadline_;
    c10::intrusive_ptr<c10d::Work> work_;
  };

  Work follow(OpKind op, Deadline deadline, c10::intrusive_ptr<c10d::Work> work) {
    return {*this, std::make_unique<NcclWork>(*this, op, deadline, std::move(work))};
  }

  // NCCL does not say which peer failed; the search starts at the next member.
  [[noreturn]] void fail(OpKind op, Deadline deadline, const std::exception& cause) {
    const bool late = deadline.expired();
    const Blame blame = board_->find_culprit(
        membership().members[static_cast<std::size_t>((index() + 1) % size())]);
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
  const comm::Siblings::Place place_;
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

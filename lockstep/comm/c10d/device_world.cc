#include "lockstep/comm/c10d/device_world.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/tensor/as_buffer.h"

namespace lockstep::comm {
namespace {

using Posted = c10::intrusive_ptr<c10d::Work>;

class DeviceCommunicator final : public Communicator {
 public:
  DeviceCommunicator(Membership membership, Ledger& ledger, Siblings& siblings, Device device,
                     c10::intrusive_ptr<c10d::Backend> backend)
      : Communicator(std::move(membership), ledger, siblings),
        device_(device),
        backend_(std::move(backend)),
        place_(siblings, *this) {}

 protected:
  Work start(const Operation& operation) override {
    if (size() == 1) {
      tensor_of(operation.out).copy_(tensor_of(operation.in));
      return {};
    }
    const Posted posted = told(operation.kind, [&] { return post(operation); });
    return {*this, [this, posted, kind = operation.kind]() -> std::optional<Ran> {
              told(kind, [&] { return posted->wait(); });
              return std::nullopt;
            }};
  }
  void start_abort(const CommError& /*reason*/) override {
    if (backend_) backend_->abort();
  }
  std::string backend_name() const override {
    return backend_ ? backend_->getBackendName() : "device";
  }

 private:
  at::Tensor tensor_of(ConstBuffer buffer) const {
    LS_CHECK(buffer.device == device_, describe(), " moves memory of its device alone");
    return tensor::as_tensor(
        {const_cast<void*>(buffer.data), buffer.count, buffer.dtype, buffer.device});
  }

  Posted post(const Operation& op) const {
    std::vector<at::Tensor> one;
    if (op.kind != OpKind::kBarrier) one = {tensor_of(op.in.count > 0 ? op.in : op.out)};
    switch (op.kind) {
      case OpKind::kBarrier: {
        c10d::BarrierOptions options;
        options.device = tensor::torch_device_of(device_);
        return backend_->barrier(options);
      }
      case OpKind::kSend:
        return backend_->send(one, op.peer, op.tag);
      case OpKind::kRecv:
        return backend_->recv(one, op.peer, op.tag);
      case OpKind::kBroadcast: {
        c10d::BroadcastOptions options;
        options.rootRank = op.peer;
        return backend_->broadcast(one, options);
      }
      case OpKind::kAllReduce:
        return backend_->allreduce(one, {});
      default:
        break;
    }
    at::Tensor in = tensor_of(op.in), out = tensor_of(op.out);
    if (op.kind == OpKind::kAllGather) return backend_->_allgather_base(out, in, {});
    if (op.kind == OpKind::kReduceScatter) return backend_->_reduce_scatter_base(out, in, {});
    LS_CHECK(op.kind == OpKind::kAllToAll);
    std::vector<std::int64_t> recv_counts = op.recv_counts, send_counts = op.send_counts;
    return backend_->alltoall_base(out, in, recv_counts, send_counts, {});
  }

  // What fails in it ends the world. The transport of the host knows who has left (last_seen).
  template <class Call>
  auto told(OpKind op, Call call) -> decltype(call()) {
    try {
      return call();
    } catch (const std::exception& cause) {
      if (is_poisoned()) throw_first_failure(op);
      const CommError error(
          {Code::kPeerLost, join_parts(to_text(op), " on ", describe(), " failed: ", cause.what()),
           "restart the job from its last checkpoint"},
          op, std::nullopt);
      poison(error);
      throw error;
    }
  }

  const Device device_;
  const c10::intrusive_ptr<c10d::Backend> backend_;  // null: a group of one
  const Siblings::Place place_;
};

}  // namespace

DeviceWorld::DeviceWorld(World& host, Device device, ConnectBackend connect_backend)
    : World(&host), host_(host), device_(device), connect_backend_(std::move(connect_backend)) {}

std::unique_ptr<Communicator> DeviceWorld::connect_device(std::string name, std::string axis,
                                                          std::vector<Rank> members,
                                                          Deadline deadline) {
  Membership place = membership(std::move(name), std::move(axis), std::move(members));
  c10::intrusive_ptr<c10d::Backend> backend;
  if (place.size() > 1) backend = connect_backend_(place, deadline);
  return std::make_unique<DeviceCommunicator>(std::move(place), ledger(), siblings(), device_,
                                              std::move(backend));
}

}  // namespace lockstep::comm

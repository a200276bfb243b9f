#include "lockstep/comm/c10d/device_world.h"

#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/tensor/as_buffer.h"

namespace lockstep::comm {

using Posted = c10::intrusive_ptr<c10d::Work>;

// What is under way on the device. The host may stand in a wait of the device's, so a thread of its
// own fails the rank's communicators when something is late. Any thread.
class DeviceWatch {
 public:
  explicit DeviceWatch(Siblings& siblings) : siblings_(siblings), thread_([this] { watch(); }) {}
  ~DeviceWatch() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  void add(const Communicator& group, const Posted& posted, OpKind kind, Deadline deadline) {
    const std::lock_guard lock(mutex_);
    under_way_.push_back({&group, posted, kind, deadline});
  }
  void forget(const Communicator& group) {
    const std::lock_guard lock(mutex_);
    std::erase_if(under_way_, [&](const Operation& one) { return one.group == &group; });
  }

 private:
  struct Operation {
    const Communicator* group;
    Posted posted;
    OpKind kind;
    Deadline deadline;
  };

  void watch() {
    constexpr std::chrono::milliseconds kPeriod(100);
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, kPeriod, [this] { return stop_; })) {
      const std::optional<CommError> failure = find_failure();
      if (!failure) continue;
      lock.unlock();
      return siblings_.fail(*failure);
    }
  }
  std::optional<CommError> find_failure() {
    for (const Operation& one : under_way_)
      if (const std::exception_ptr cause = one.posted->exception())
        return error(one, Code::kPeerLost, " failed: " + text_of(cause));
    std::erase_if(under_way_, [](const Operation& one) { return one.posted->isCompleted(); });
    for (const Operation& one : under_way_)
      if (one.deadline.expired())
        return error(one, Code::kPeerStalled, " was not over by its deadline");
    return std::nullopt;
  }
  static CommError error(const Operation& of, Code code, const std::string& why) {
    return {{code, join_parts(to_text(of.kind), " on ", of.group->describe(), why),
             "restart the job from its last checkpoint"},
            of.kind,
            std::nullopt};
  }
  static std::string text_of(const std::exception_ptr& cause) {
    try {
      std::rethrow_exception(cause);
    } catch (const std::exception& known) {
      return known.what();
    }
  }

  Siblings& siblings_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::vector<Operation> under_way_;
  std::thread thread_;
};

namespace {

class DeviceCommunicator final : public Communicator {
 public:
  DeviceCommunicator(Membership membership, Ledger& ledger, Siblings& siblings, Device device,
                     c10::intrusive_ptr<c10d::Backend> backend, DeviceWatch& watch)
      : Communicator(std::move(membership), ledger, siblings),
        device_(device),
        backend_(std::move(backend)),
        watch_(watch),
        place_(siblings, *this) {}
  ~DeviceCommunicator() override {
    watch_.forget(*this);
    if (backend_ && !is_poisoned()) backend_->shutdown();
  }

 protected:
  Work start(const Operation& operation) override {
    if (size() == 1) {
      tensor_of(operation.out).copy_(tensor_of(operation.in));
      return {};
    }
    const Posted posted = told(operation.kind, [&] { return post(operation); });
    watch_.add(*this, posted, operation.kind, operation.deadline);
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
  DeviceWatch& watch_;
  const Siblings::Place place_;
};

}  // namespace

DeviceWorld::DeviceWorld(World& host, Device device, ConnectBackend connect_backend)
    : World(&host),
      host_(host),
      device_(device),
      connect_backend_(std::move(connect_backend)),
      watch_(std::make_unique<DeviceWatch>(siblings())) {}

DeviceWorld::~DeviceWorld() = default;

std::unique_ptr<Communicator> DeviceWorld::connect_device(std::string name, std::string axis,
                                                          std::vector<Rank> members,
                                                          Deadline deadline) {
  Membership place = membership(std::move(name), std::move(axis), std::move(members));
  c10::intrusive_ptr<c10d::Backend> backend;
  if (place.size() > 1) backend = connect_backend_(place, deadline);
  return std::make_unique<DeviceCommunicator>(std::move(place), ledger(), siblings(), device_,
                                              std::move(backend), *watch_);
}

// ProcessGroupNCCL makes a communicator for a pair at its first message, and the host waits there
// for the other end. A receive that is posted early would wait for a peer that waits for what comes
// behind it. So all pairs are connected here, in one order.
std::unique_ptr<Communicator> DeviceWorld::connect_ring(std::string name, std::string axis,
                                                        std::vector<Rank> members,
                                                        Deadline deadline) {
  auto made = connect_device(std::move(name), std::move(axis), std::move(members), deadline);
  const int last = made->size() - 1, self = made->index();
  const at::Tensor token =
      at::zeros({1}, at::TensorOptions(at::kByte).device(tensor::torch_device_of(device_)));
  const auto connect = [&](int low, int high) {
    if (self == low) made->send(tensor::as_buffer(token), high, 0, deadline).wait();
    if (self == high) made->recv(tensor::as_buffer(token), low, 0, deadline).wait();
  };
  for (int low = 0; low < last; ++low) {
    connect(low, low + 1);
    if (low == 0 && last > 1) connect(0, last);
  }
  return made;
}

}  // namespace lockstep::comm

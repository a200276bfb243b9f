#include "tests/glass/backend.h"

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <condition_variable>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/comm/c10d/device_world.h"
#include "lockstep/comm/tree_sum.h"
#include "lockstep/tensor/as_buffer.h"
#include "tests/glass/device.h"
#include "tests/glass/order.h"

namespace lockstep::glass {
namespace {

constexpr std::chrono::seconds kPatience(20);

c10::Stream stream_now(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

// One member's part in one operation.
struct Part {
  at::Tensor in, out;
  std::vector<std::int64_t> send_counts = {};
};

class Hub {
 public:
  struct Call {
    std::string key;   // of the operation, the same on all members
    std::string kind;  // "all_reduce"
    int rank = 0;      // of the world
    int member = 0, members = 1, root = 0;
  };

  // Checks order and kind; the last member to come moves the data.
  void issue(const Call& call, const Part& part) {
    const std::lock_guard lock(mutex_);
    if (!broken_.empty()) throw std::runtime_error(broken_);
    Operation& operation = operations_[call.key];
    check_equal(operation, call, part);
    // A message waits for its peer on a stream of its own beside others (exec/groups.h).
    if (!call.kind.starts_with("message"))
      if (const auto why = order_.issue(call.rank, call.key)) fail(*why);
    operation.parts[call.member] = part;
    if (static_cast<int>(operation.parts.size()) < call.members) return;
    move(operation, call);
    operation.parts.clear();
    operation.is_done = true;
    changed_.notify_all();
  }

  void wait(const std::string& key) {
    std::unique_lock lock(mutex_);
    const auto ready = [&] { return operations_[key].is_done || !broken_.empty(); };
    if (!changed_.wait_for(lock, kPatience, ready))
      fail("late: " + key + " (" + operations_[key].kind + ")");
    if (!operations_[key].is_done) throw std::runtime_error(broken_);
  }

  bool is_over(const std::string& key) {
    const std::lock_guard lock(mutex_);
    return operations_[key].is_done || !broken_.empty();
  }

  // Both ends of a pair wait for each other before their first message, as at ncclCommInitRank.
  void connect(const std::string& pair) {
    std::unique_lock lock(mutex_);
    ++connected_[pair];
    changed_.notify_all();
    const auto ready = [&] { return connected_[pair] == 2 || !broken_.empty(); };
    if (!changed_.wait_for(lock, kPatience, ready)) fail("late: nobody connects " + pair);
    if (connected_[pair] < 2) throw std::runtime_error(broken_);
  }

  void break_all(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (broken_.empty()) broken_ = why;
    changed_.notify_all();
  }

 private:
  struct Operation {
    std::string kind;
    std::int64_t bytes = 0;
    std::map<int, Part> parts;  // by member
    bool is_done = false;
  };

  [[noreturn]] void fail(const std::string& why) {
    if (broken_.empty()) broken_ = why;
    changed_.notify_all();
    throw std::runtime_error(why);
  }

  void check_equal(Operation& operation, const Call& call, const Part& part) {
    const bool is_uneven = call.kind == "all_to_all" || call.kind == "barrier";
    const auto& sized = part.in.defined() ? part.in : part.out;
    const auto bytes = is_uneven ? 0 : static_cast<std::int64_t>(sized.nbytes());
    if (operation.parts.empty()) {
      operation.kind = call.kind;
      operation.bytes = bytes;
    } else if (operation.kind != call.kind || operation.bytes != bytes) {
      fail(join_parts("mismatch: ", call.key, " is ", call.kind, " of ", bytes, " bytes on rank ",
                      call.rank, ", and ", operation.kind, " of ", operation.bytes,
                      " bytes on another"));
    }
  }

  static void move(Operation& operation, const Call& call) {
    const auto in = [&](int member) { return on_cpu(operation.parts.at(member).in); };
    const auto out = [&](int member) { return on_cpu(operation.parts.at(member).out); };
    const int n = call.members;
    if (call.kind == "barrier") return;
    if (call.kind.starts_with("message")) {
      out(1).copy_(in(0));
    } else if (call.kind == "broadcast") {
      for (int member = 0; member < n; ++member)
        if (member != call.root) out(member).copy_(in(call.root));
    } else if (call.kind == "all_gather") {
      std::vector<at::Tensor> copies;  // an input may be a piece of its output
      for (int from = 0; from < n; ++from) copies.push_back(in(from).clone());
      for (int to = 0; to < n; ++to)
        for (int from = 0; from < n; ++from)
          out(to).narrow(0, from * copies[0].numel(), copies[0].numel()).copy_(copies[from]);
    } else if (call.kind == "all_to_all") {
      for (int to = 0; to < n; ++to) {
        std::int64_t at = 0;
        for (int from = 0; from < n; ++from) {
          const std::vector<std::int64_t>& counts = operation.parts.at(from).send_counts;
          std::int64_t begin = 0;
          for (int i = 0; i < to; ++i) begin += counts[static_cast<std::size_t>(i)];
          const std::int64_t count = counts[static_cast<std::size_t>(to)];
          out(to).narrow(0, at, count).copy_(in(from).narrow(0, begin, count));
          at += count;
        }
      }
    } else {
      reduce(operation, call);
    }
  }

  // In the order of the CPU's backends, so that bits can be compared.
  static void reduce(Operation& operation, const Call& call) {
    std::vector<at::Tensor> copies;
    std::vector<const void*> inputs;
    for (int member = 0; member < call.members; ++member) {
      copies.push_back(on_cpu(operation.parts.at(member).in).clone());
      inputs.push_back(copies.back().const_data_ptr());
    }
    const at::Tensor sum = copies[0].clone();
    comm::tree_sum(inputs, sum.mutable_data_ptr(), sum.numel(),
                   tensor::dtype_of(sum.scalar_type()));
    for (int member = 0; member < call.members; ++member) {
      const at::Tensor out = on_cpu(operation.parts.at(member).out);
      out.copy_(out.numel() == sum.numel() ? sum
                                           : sum.narrow(0, member * out.numel(), out.numel()));
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Operation> operations_;
  Order order_;
  std::map<std::string, int> connected_;  // ends, by pair
  std::string broken_;
};

namespace {

// As ProcessGroupNCCL's: the current stream waits, the host does not. Here it has to wait until the
// peers have come, because results are computed at issue; what it has not waited for stays
// unordered for the checker.
class GlassWork final : public c10d::Work {
 public:
  GlassWork(std::shared_ptr<Hub> hub, std::string key, c10::Event end)
      : hub_(std::move(hub)), key_(std::move(key)), end_(std::move(end)) {}
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    hub_->wait(key_);
    end_.block(stream_now(end_.device()));
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }
  bool isCompleted() override { return hub_->is_over(key_); }

 private:
  const std::shared_ptr<Hub> hub_;
  const std::string key_;
  c10::Event end_;
};

class GlassBackend final : public c10d::Backend {
 public:
  GlassBackend(std::shared_ptr<Hub> hub, const comm::Membership& place, c10::Device device)
      : Backend(place.index, place.size()),
        hub_(std::move(hub)),
        name_(place.name),
        rank_(place.rank().value),
        device_(device),
        stream_(c10::impl::VirtualGuardImpl(device.type()).getNewStream(device)) {}

  const std::string getBackendName() const override { return "glass"; }
  using Posted = c10::intrusive_ptr<c10d::Work>;
  Posted allreduce(std::vector<at::Tensor>& data, const c10d::AllreduceOptions& /*o*/) override {
    return collective("all_reduce", {data[0], data[0]});
  }
  Posted broadcast(std::vector<at::Tensor>& data, const c10d::BroadcastOptions& options) override {
    const bool is_root = getRank() == options.rootRank;
    return collective("broadcast", is_root ? Part{data[0], {}} : Part{{}, data[0]},
                      static_cast<int>(options.rootRank));
  }
  Posted _allgather_base(at::Tensor& out, at::Tensor& in,
                         const c10d::AllgatherOptions& /*o*/) override {
    return collective("all_gather", {in, out});
  }
  Posted _reduce_scatter_base(at::Tensor& out, at::Tensor& in,
                              const c10d::ReduceScatterOptions& /*o*/) override {
    return collective("reduce_scatter", {in, out});
  }
  Posted alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<std::int64_t>& /*received*/,
                       std::vector<std::int64_t>& sent,
                       const c10d::AllToAllOptions& /*o*/) override {
    return collective("all_to_all", {in, out, sent});
  }
  Posted barrier(const c10d::BarrierOptions& /*o*/) override { return collective("barrier", {}); }
  Posted send(std::vector<at::Tensor>& data, int to, int /*tag*/) override {
    return message({data[0], {}}, getRank(), to);
  }
  Posted recv(std::vector<at::Tensor>& data, int from, int /*tag*/) override {
    return message({{}, data[0]}, from, getRank());
  }
  void abort() override { hub_->break_all("aborted"); }

 private:
  Posted collective(const std::string& kind, const Part& part, int root = 0) {
    return post({join_parts(name_, " #", calls_++), kind, rank_, getRank(), getSize(), root}, part);
  }
  // NCCL knows no tags: messages of a pair, in either direction, match in the order of issue.
  Posted message(const Part& part, int from, int to) {
    const std::pair<int, int> pair = std::minmax(from, to);
    const std::int64_t number = messages_[pair]++;
    if (number == 0) hub_->connect(join_parts(name_, " ", pair.first, "-", pair.second));
    return post({join_parts(name_, " ", pair.first, "-", pair.second, " #", number),
                 join_parts("message ", from, "->", to), rank_, part.in.defined() ? 0 : 1, 2},
                part);
  }
  Posted post(const Hub::Call& call, const Part& part) {
    std::vector<Access> accesses;
    for (const at::Tensor* tensor : {&part.in, &part.out}) {
      if (!tensor->defined()) continue;
      TORCH_CHECK(tensor->device() == device_ && tensor->is_contiguous(), call.key,
                  ": not a contiguous tensor of ", device_);
      accesses.push_back(access_of(*tensor, tensor == &part.out));
    }
    c10::Event ready(device_.type());
    ready.record(stream_now(device_));
    ready.block(stream_);
    race().launch(stream_number(stream_), call.kind + " " + name_, accesses);
    c10::Event end(device_.type());
    end.record(stream_);
    hub_->issue(call, part);
    return c10::make_intrusive<GlassWork>(hub_, call.key, std::move(end));
  }

  const std::shared_ptr<Hub> hub_;
  const std::string name_;
  const int rank_;
  const c10::Device device_;
  const c10::Stream stream_;
  std::int64_t calls_ = 0;
  std::map<std::pair<int, int>, std::int64_t> messages_;
};

}  // namespace

Wires::Wires() : hub_(std::make_shared<Hub>()) {}
Wires::~Wires() = default;

std::unique_ptr<comm::World> Wires::join(comm::World& host) const {
  const Device device = {DeviceKind::kPrivateUse1, static_cast<std::int16_t>(host.rank().value)};
  return std::make_unique<comm::DeviceWorld>(
      host, device, [hub = hub_, device](const comm::Membership& place, Deadline /*deadline*/) {
        return c10::make_intrusive<GlassBackend>(hub, place, tensor::torch_device_of(device));
      });
}

}  // namespace lockstep::glass

#include "lockstep/comm/gloo/link.h"

#include <ATen/ops/from_blob.h>
#if __has_include(<torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>)
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#else
#include <torch/csrc/distributed/c10d/gloo/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/store/PrefixStore.hpp>
#endif

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>

namespace lockstep::comm {
namespace {

std::chrono::milliseconds in_milliseconds(Deadline deadline) {
  const double seconds = std::clamp(deadline.remaining().value, 0.001, 1e6);
  return std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds + 0.5));
}

at::Tensor as_bytes(void* data, std::int64_t bytes) {
  return at::from_blob(data, {bytes}, at::kByte);
}

class GlooTransfer final : public Transfer {
 public:
  explicit GlooTransfer(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}

  bool wait(Deadline deadline) override {
    std::lock_guard lock(waiting_);
    if (failure_) std::rethrow_exception(failure_);
    if (completed_) return true;
    if (aborted_) return false;
    try {
      completed_ = work_->wait(in_milliseconds(deadline));
      return completed_;
    } catch (const std::exception&) {
      failure_ = std::current_exception();
      throw;
    }
  }
  void abort() override {
    aborted_ = true;
    work_->abort();
  }
  // Gloo closes the group's connections when a wait for one of its transfers expires. The first wait
  // after an abort only reports the abort.
  void give_up() override {
    const std::unique_lock lock(waiting_, std::try_to_lock);
    if (!lock) return abort();  // somebody waits for it and is to learn that it is over
    for (int attempt = 0; attempt < 2 && !completed_ && !failure_; ++attempt) {
      try {
        completed_ = work_->wait(std::chrono::milliseconds(1));
      } catch (const std::exception&) {
        failure_ = std::current_exception();
      }
    }
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::atomic<bool> aborted_ = false;
  std::mutex waiting_;  // guards the rest
  bool completed_ = false;
  std::exception_ptr failure_;
};

// Each device owns a thread, so all groups of the process share one.
const std::shared_ptr<::gloo::transport::Device>& device(const std::string& own_address) {
  static const auto shared = [&] {
    if (const char* name = std::getenv("GLOO_SOCKET_IFNAME"); name != nullptr && *name != '\0')
      return c10d::ProcessGroupGloo::createDeviceForInterface(name);
    return c10d::ProcessGroupGloo::createDeviceForHostname(own_address);
  }();
  return shared;
}

}  // namespace

struct GlooLink::Impl {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
};

GlooLink::GlooLink(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GlooLink::~GlooLink() = default;

std::unique_ptr<GlooLink> GlooLink::connect(Store& store, const std::string& name, int index,
                                            int size, const std::string& own_address,
                                            Deadline deadline) {
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(device(own_address));
  options->threads = 1;
  options->timeout = in_milliseconds(deadline);
  auto native = c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(&store.native());
  auto prefixed = c10::make_intrusive<c10d::PrefixStore>(name, std::move(native));
  prefixed->setTimeout(in_milliseconds(deadline));
  return std::unique_ptr<GlooLink>(new GlooLink(std::make_unique<Impl>(
      c10::make_intrusive<c10d::ProcessGroupGloo>(std::move(prefixed), index, size, options))));
}

std::unique_ptr<Transfer> GlooLink::send(const void* data, std::int64_t bytes, int to, int tag) {
  std::vector<at::Tensor> message{as_bytes(const_cast<void*>(data), bytes)};
  return std::make_unique<GlooTransfer>(impl_->group->send(message, to, tag));
}

std::unique_ptr<Transfer> GlooLink::recv(void* data, std::int64_t bytes, int from, int tag) {
  std::vector<at::Tensor> message{as_bytes(data, bytes)};
  return std::make_unique<GlooTransfer>(impl_->group->recv(message, from, tag));
}

c10d::Backend& GlooLink::native() const { return *impl_->group; }

}  // namespace lockstep::comm

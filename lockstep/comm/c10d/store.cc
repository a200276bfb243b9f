#include "lockstep/comm/c10d/store.h"

#if __has_include(<torch/csrc/distributed/c10d/TCPStore.hpp>)
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#else
#include <torch/csrc/distributed/c10d/store/TCPStore.hpp>
#endif

#include <c10/util/Logging.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "lockstep/base/descriptor.h"
#include "lockstep/comm/address.h"
#include "lockstep/comm/call_beside.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;

std::vector<std::uint8_t> as_bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string as_text(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// c10d logs every broken connection with a stack of frames, before anybody has said what it means.
// TORCH_CPP_LOG_LEVEL brings that back.
void quiet_c10d() {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = 2;  // errors
}

}  // namespace

std::chrono::milliseconds in_milliseconds(Deadline deadline) {
  const double seconds = std::clamp(deadline.remaining().value, 0.001, 1e6);
  return std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds + 0.5));
}

struct Store::Impl {
  c10::intrusive_ptr<c10d::TCPStore> store;
  std::string host;
  const std::atomic<bool>* stop = nullptr;

  // c10d's own retries keep to no deadline, so somebody accepted `connection` before it tries; that
  // tells also when the other end goes away.
  static std::unique_ptr<Impl> greet(int connection, const std::string& host, std::uint16_t port,
                                     Deadline deadline, const std::atomic<bool>* stop);
};

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::~Store() = default;

// Not a socket of c10d's own, which would listen on all interfaces.
std::unique_ptr<Store> Store::host(const std::string& address, std::uint16_t port) {
  return host(listen_at(address, port));
}

std::unique_ptr<Store> Store::host(int listening_socket) {
  quiet_c10d();
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = listening_socket;
  options.port = port_of(listening_socket);
  const std::string own = address_of(listening_socket);
  return std::unique_ptr<Store>(new Store(
      std::make_unique<Impl>(Impl{c10::make_intrusive<c10d::TCPStore>(own, options), own})));
}

std::unique_ptr<Store::Impl> Store::Impl::greet(int connection, const std::string& host,
                                                std::uint16_t port, Deadline deadline,
                                                const std::atomic<bool>* stop) {
  const Descriptor held(connection);
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  options.timeout = std::min<std::chrono::milliseconds>(in_milliseconds(deadline), 1h);
  // c10d greets the server and waits for its answer for ever.
  auto made = call_beside(
      [host, options] { return c10::make_intrusive<c10d::TCPStore>(host, options); },
      [&] {
        if (stop != nullptr && *stop)
          throw WorldError({Code::kInterrupted, "asked to stop while connecting to the store"});
        if (is_closed(connection)) throw std::runtime_error("its host is gone");
        if (deadline.expired())
          throw std::runtime_error("it accepts connections, but does not answer");
      });
  return std::make_unique<Impl>(Impl{std::move(made), host, stop});
}

std::unique_ptr<Store> Store::connect(const std::string& host, std::uint16_t port,
                                      Deadline deadline, const std::atomic<bool>* stop,
                                      const std::function<void(const std::string&)>& tell) {
  quiet_c10d();
  const int connection = await_and_connect(host, port, deadline, stop, tell);
  return std::unique_ptr<Store>(new Store(Impl::greet(connection, host, port, deadline, stop)));
}

std::unique_ptr<Store> Store::connect_again(Deadline deadline) const {
  const int connection = connect_to(impl_->host, port(), deadline);
  return std::unique_ptr<Store>(
      new Store(Impl::greet(connection, impl_->host, port(), deadline, impl_->stop)));
}

std::uint16_t Store::port() const { return impl_->store->getPort(); }
void Store::set(const std::string& key, const std::string& value) {
  impl_->store->set(key, as_bytes(value));
}
std::string Store::get(const std::string& key) { return as_text(impl_->store->get(key)); }
std::vector<std::string> Store::get_all(const std::vector<std::string>& keys) {
  std::vector<std::string> values;
  for (const auto& bytes : impl_->store->multiGet(keys)) values.push_back(as_text(bytes));
  return values;
}
std::string Store::set_once(const std::string& key, const std::string& value) {
  return as_text(impl_->store->compareSet(key, {}, as_bytes(value)));
}
bool Store::has(const std::string& key) { return impl_->store->check({key}); }
c10d::Store& Store::native() const { return *impl_->store; }

}  // namespace lockstep::comm

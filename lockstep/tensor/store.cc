#include "lockstep/tensor/store.h"

#if __has_include(<torch/csrc/distributed/c10d/TCPStore.hpp>)
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#else
#include <torch/csrc/distributed/c10d/store/TCPStore.hpp>
#endif

#include <algorithm>

namespace lockstep::tensor {
namespace {

std::vector<std::uint8_t> as_bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string as_text(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

struct Store::Impl {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::~Store() = default;

std::unique_ptr<Store> Store::host(std::uint16_t port) {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.waitWorkers = false;
  options.port = port;
  return std::unique_ptr<Store>(
      new Store(std::make_unique<Impl>(c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options))));
}

std::unique_ptr<Store> Store::connect(const std::string& host, std::uint16_t port,
                                      Deadline deadline) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  const double seconds = std::clamp(deadline.remaining().value, 0.001, 3600.0);
  options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds));
  return std::unique_ptr<Store>(
      new Store(std::make_unique<Impl>(c10::make_intrusive<c10d::TCPStore>(host, options))));
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
std::int64_t Store::add(const std::string& key, std::int64_t amount) {
  return impl_->store->add(key, amount);
}
c10d::Store& Store::native() const { return *impl_->store; }

}  // namespace lockstep::tensor

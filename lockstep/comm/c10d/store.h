// The key-value store through which ranks find each other: c10d's TCPStore, so torchrun's own store
// serves as well.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"

namespace c10d {
class Store;
}

namespace lockstep::comm {

// What is left until the deadline, for c10d: at least 1 ms.
std::chrono::milliseconds in_milliseconds(Deadline deadline);

// One connection to the store. Any thread may call it, but calls on one connection wait for each
// other, and a store whose host is stopped answers never: who must not hang uses a connection of
// its own on a thread of its own. Every call throws std::exception when the store is gone.
class Store {
 public:
  // Hosts the store on `port` (0: any free port) of the machine's own address `address`
  // (comm/address.h), or at a socket that listens already, which it then owns; and connects to it.
  static std::unique_ptr<Store> host(const std::string& address, std::uint16_t port);
  static std::unique_ptr<Store> host(int listening_socket);
  // Throws std::exception at the deadline, soon after `stop` was set, and when the host goes away
  // meanwhile; tells when it waits for long. `stop` must outlive the store.
  static std::unique_ptr<Store> connect(const std::string& host, std::uint16_t port,
                                        Deadline deadline, const std::atomic<bool>* stop = nullptr,
                                        const std::function<void(const std::string&)>& tell = {});
  // Another connection to the same store. Throws as connect() does; nobody is waited for.
  std::unique_ptr<Store> connect_again(Deadline deadline) const;
  ~Store();

  std::uint16_t port() const;
  void set(const std::string& key, const std::string& value);
  std::string get(const std::string& key);  // waits for the key to appear
  std::vector<std::string> get_all(const std::vector<std::string>& keys);
  // Sets the key unless it is set already; returns what it holds then.
  std::string set_once(const std::string& key, const std::string& value);
  bool has(const std::string& key);

  c10d::Store& native() const;

 private:
  struct Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::comm

#include "lockstep/comm/address.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>

#include "lockstep/base/check.h"
#include "lockstep/base/descriptor.h"

namespace lockstep::comm {
namespace {

constexpr std::chrono::milliseconds kBetweenTries{50};

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

WorldError unreachable_at(const std::string& what, const std::string& why) {
  return WorldError({Code::kStoreLost, what + ": " + why,
                     "check that rank 0 was started and that MASTER_ADDR and MASTER_PORT are its "
                     "own; GLOO_SOCKET_IFNAME names another network interface"});
}

Addresses resolve(const std::string& host, std::uint16_t port, int kind) {
  addrinfo hints = {};
  hints.ai_socktype = kind;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failed != 0) throw unreachable_at("`" + host + "` has no address", ::gai_strerror(failed));
  return {found, &::freeaddrinfo};
}

std::string numeric(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = {};
  ::getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

std::optional<sockaddr_storage> own_end(int fd, socklen_t& length) {
  sockaddr_storage own = {};
  length = sizeof own;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) != 0) return std::nullopt;
  return own;
}

// -1, with errno, where this is no address of the machine.
int listen_on(const sockaddr* address, socklen_t length) {
  Descriptor fd(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd < 0) return -1;
  const int yes = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  return ::bind(fd, address, length) == 0 && ::listen(fd, SOMAXCONN) == 0 ? fd.release() : -1;
}

// Whether a person wrote loopback itself, and not a name that means it here.
bool says_loopback(const std::string& host) { return host == "localhost" || is_loopback(host); }

int try_connect(const addrinfo& address, Deadline deadline) {
  Descriptor fd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd < 0) return -1;
  if (::connect(fd, address.ai_addr, address.ai_addrlen) != 0 && errno == EINPROGRESS) {
    pollfd waiting = {fd, POLLOUT, 0};
    const double seconds = std::min(deadline.remaining().value, 1.0);
    if (::poll(&waiting, 1, static_cast<int>(1000 * seconds)) <= 0) errno = ETIMEDOUT;
  }
  int failed = 0;
  socklen_t size = sizeof failed;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &size);
  sockaddr_storage peer = {};
  socklen_t length = sizeof peer;
  if (failed == 0 && ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0) {
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return fd.release();
  }
  if (failed != 0) errno = failed;  // which closing it leaves as it is
  return -1;
}

// At every address of the name; -1 with errno of the last.
int try_all(const std::string& host, std::uint16_t port, Deadline deadline) {
  const Addresses found = resolve(host, port, SOCK_STREAM);
  int fd = -1, reason = 0;
  for (const addrinfo* at = found.get(); at != nullptr && fd < 0; at = at->ai_next) {
    fd = try_connect(*at, deadline);
    reason = errno;
  }
  errno = reason;
  return fd;
}

}  // namespace

bool is_loopback(const std::string& address) {
  in6_addr six = {};
  return address.starts_with("127.") ||
         (::inet_pton(AF_INET6, address.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six));
}

std::string route_to(const std::string& host) {
  const Addresses found = resolve(host, 1, SOCK_DGRAM);
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    const Descriptor fd(::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd < 0) continue;
    socklen_t length = 0;
    std::optional<sockaddr_storage> own;
    if (::connect(fd, at->ai_addr, at->ai_addrlen) == 0) own = own_end(fd, length);
    if (own) return numeric(reinterpret_cast<const sockaddr*>(&*own), length);
  }
  throw unreachable_at("there is no route to `" + host + "`", std::strerror(errno));
}

int listen_at(const std::string& host, std::uint16_t port) {
  const Addresses found = resolve(host, port, SOCK_STREAM);
  const std::string first = numeric(found->ai_addr, found->ai_addrlen);
  const bool is_plain = !is_loopback(first) || says_loopback(host);
  int fd = is_plain ? listen_on(found->ai_addr, found->ai_addrlen) : -1;
  if (!is_plain || (fd < 0 && errno == EADDRNOTAVAIL)) {
    sockaddr_in all = {};
    all.sin_family = AF_INET;
    all.sin_port = htons(port);
    fd = listen_on(reinterpret_cast<const sockaddr*>(&all), sizeof all);
  }
  if (fd < 0)
    throw unreachable_at(
        join_parts("port ", port, " of `", host, "` cannot be listened at"),
        errno == EADDRINUSE ? "it is in use, perhaps by another job" : std::strerror(errno));
  return fd;
}

std::uint16_t port_of(int socket) {
  socklen_t length = 0;
  const auto own = own_end(socket, length);
  if (!own) return 0;
  return ntohs(own->ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(*own).sin6_port
                                          : reinterpret_cast<const sockaddr_in&>(*own).sin_port);
}

std::string address_of(int socket) {
  socklen_t length = 0;
  const auto own = own_end(socket, length);
  const std::string text =
      own ? numeric(reinterpret_cast<const sockaddr*>(&*own), length) : std::string();
  return text.empty() || text == "0.0.0.0" || text == "::" ? "127.0.0.1" : text;
}

int connect_to(const std::string& host, std::uint16_t port, Deadline deadline) {
  for (;;) {
    if (const int fd = try_all(host, port, deadline); fd >= 0) return fd;
    if (errno == ECONNREFUSED || deadline.expired())
      throw unreachable_at(join_parts(host, ":", port, " is not reached"), std::strerror(errno));
    std::this_thread::sleep_for(kBetweenTries);
  }
}

int await_and_connect(const std::string& host, std::uint16_t port, Deadline deadline,
                      const std::atomic<bool>* stop,
                      const std::function<void(const std::string&)>& tell) {
  const std::string where = join_parts(host, ":", port);
  const Deadline worth_telling = Deadline::after(Seconds{2});
  bool told = false;
  for (;;) {
    if (const int fd = try_all(host, port, deadline); fd >= 0) return fd;
    const std::string why = std::strerror(errno);
    if (stop != nullptr && *stop)
      throw WorldError({Code::kInterrupted, "asked to stop while waiting for " + where});
    if (deadline.expired()) throw unreachable_at(where + " was not reached in time", why);
    if (tell && !told && worth_telling.expired()) {
      tell("waiting for rank 0 at " + where + ": " + why);
      told = true;
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

bool is_closed(int connection) {
  char byte = 0;
  const ssize_t got = ::recv(connection, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

}  // namespace lockstep::comm

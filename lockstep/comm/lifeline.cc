#include "lockstep/comm/lifeline.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>

#include "lockstep/base/descriptor.h"
#include "lockstep/comm/address.h"

namespace lockstep::comm {
namespace {

constexpr char kGoodbye = 'b';
constexpr std::size_t kStrangers = 64;  // connections that have not presented themselves

struct Hello {
  std::uint64_t secret;
  std::int64_t rank;
};

void say(int fd, const void* data, std::size_t size) {
  (void)!::send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);  // whoever is gone hears nothing
}

}  // namespace

Lifeline::Lifeline(const std::string& address, std::uint64_t secret, int world, Lost lost)
    : secret_(secret),
      world_(world),
      lost_(std::move(lost)),
      listener_(listen_at(address, 0)),
      port_(port_of(listener_)),
      present_(world) {
  start();
}

Lifeline::Lifeline(const std::string& host, std::uint16_t port, std::uint64_t secret, Rank own,
                   Deadline deadline, Lost lost)
    : secret_(secret), world_(0), lost_(std::move(lost)) {
  const int fd = connect_to(host, port, deadline);
  const Hello hello = {secret, own.value};
  say(fd, &hello, sizeof hello);
  peers_[fd].rank = 0;
  start();
}

void Lifeline::start() {
  if (::pipe2(wake_, O_CLOEXEC) != 0) {
    close_all();
    throw WorldError({Code::kUnsuitableEnvironment, "cannot make a pipe: " + system_reason()});
  }
  thread_ = std::thread([this] { watch(); });
}

Lifeline::~Lifeline() {
  (void)!::write(wake_[1], "", 1);
  thread_.join();
  if (std::uncaught_exceptions() == 0)
    for (const auto& [fd, peer] : peers_)
      if (peer.rank >= 0) say(fd, &kGoodbye, 1);
  close_all();
}

void Lifeline::close_all() {
  for (const auto& [fd, peer] : peers_) ::close(fd);
  for (const int fd : {listener_, wake_[0], wake_[1]})
    if (fd >= 0) ::close(fd);
}

// False when the connection is over.
bool Lifeline::hear(int fd, Peer& peer) {
  char bytes[64];
  const ssize_t got = ::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (peer.rank >= 0) {
    if (got <= 0) lost_(Rank{peer.rank});
    return got > 0 && bytes[0] != kGoodbye;
  }
  if (got <= 0) return false;
  peer.received.append(bytes, got);
  if (peer.received.size() < sizeof(Hello)) return true;
  Hello hello = {};
  std::memcpy(&hello, peer.received.data(), sizeof hello);
  if (hello.secret != secret_ || hello.rank <= 0 || hello.rank >= world_) return false;
  if (present_[hello.rank]) return false;
  present_[hello.rank] = true;
  peer.rank = static_cast<int>(hello.rank);
  return peer.received.size() == sizeof hello || peer.received[sizeof hello] != kGoodbye;
}

void Lifeline::watch() {
  for (;;) {
    std::vector<pollfd> waiting = {{wake_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const auto& [fd, peer] : peers_) waiting.push_back({fd, POLLIN, 0});
    if (::poll(waiting.data(), waiting.size(), -1) < 0) continue;
    if (waiting[0].revents != 0) return;
    for (std::size_t i = 2; i < waiting.size(); ++i)
      if (waiting[i].revents != 0 && !hear(waiting[i].fd, peers_[waiting[i].fd]))
        drop(waiting[i].fd);
    if (waiting[1].revents != 0) accept_one();
  }
}

void Lifeline::accept_one() {
  const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) {  // out of descriptors, perhaps: the connection stays in the queue
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return;
  }
  std::vector<int> strangers;
  for (const auto& [other, peer] : peers_)
    if (peer.rank < 0) strangers.push_back(other);
  if (strangers.size() >= kStrangers) drop(strangers.front());
  if (!hear(fd, peers_[fd])) drop(fd);
}

void Lifeline::drop(int fd) {
  ::close(fd);
  peers_.erase(fd);
}

}  // namespace lockstep::comm

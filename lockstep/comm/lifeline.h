// A connection of every rank to rank 0 on which nothing travels. The kernel closes it when a
// process ends, however it ends and on whatever host, so a death is known within milliseconds even
// where a backend would not notice: Gloo never fails a message that is half way. A process that is
// only stopped, or a host that is gone without a word, keeps its connection: for those there are
// heartbeats.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/ids.h"

namespace lockstep::comm {

// One rank's end. Destruction says goodbye, so that nobody takes it for a death; but not while an
// exception ends the rank, because others may wait for what it will not do any more.
class Lifeline {
 public:
  // Called at most once for a rank, on a thread of the lifeline: it must not wait for that thread.
  using Lost = std::function<void(Rank)>;

  // Rank 0: listens on the numeric address of its own host. Connections that do not present the
  // secret are ignored. Throws WorldError (LS0505) when it cannot.
  Lifeline(const std::string& address, std::uint64_t secret, int world, Lost lost);
  // The others: `port` is that of rank 0. Throws WorldError (LS0505) when it is not reached in
  // time.
  Lifeline(const std::string& host, std::uint16_t port, std::uint64_t secret, Rank own,
           Deadline deadline, Lost lost);
  ~Lifeline();
  Lifeline(Lifeline&&) = delete;

  std::uint16_t port() const { return port_; }  // of rank 0's end

 private:
  struct Peer {
    std::string received;  // until it has presented itself
    int rank = -1;
  };
  void start();
  void watch();
  bool hear(int fd, Peer& peer);
  void accept_one();
  void drop(int fd);
  void close_all();

  const std::uint64_t secret_;
  const int world_;
  const Lost lost_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  int wake_[2] = {-1, -1};     // a pipe; a byte in it ends the thread
  std::map<int, Peer> peers_;  // by descriptor; of the thread alone once it runs
  std::vector<bool> present_;  // by rank
  std::thread thread_;
};

}  // namespace lockstep::comm

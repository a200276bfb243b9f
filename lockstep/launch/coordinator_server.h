// The coordinator and its connections, on a thread of the first host's launcher.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "lockstep/launch/channel.h"
#include "lockstep/launch/coordinator.h"
#include "lockstep/launch/host.h"

namespace lockstep::launch {

// How often each end of a connection says that it lives, and after how long a silence it is over.
inline constexpr Seconds kBetweenBeats = {1}, kLongestSilence = {10};

class CoordinatorServer {
 public:
  // `own`: a socket whose other end has the launcher of this process. Listens for others where the
  // job has several hosts. Throws WorldError (LS0505) when it cannot.
  CoordinatorServer(const Host& host, const Policy& policy, std::string secret, Descriptor own,
                    Coordinator::Tell tell);
  // Ends the job, if it is not over; stays up to 2 s for others to hear of it.
  ~CoordinatorServer();
  CoordinatorServer(CoordinatorServer&&) = delete;

 private:
  struct Stranger {  // has not said which host it is
    Stranger(Descriptor connection, const std::string& secret, Deadline limit, bool own)
        : channel(std::move(connection), Channel::End::kListened, secret),
          until(limit),
          is_own(own) {}
    Channel channel;
    const Deadline until;
    const bool is_own;  // of this process
  };
  void run();
  void wait();
  void accept_one();
  void hear_strangers();
  void admit(Stranger& stranger, const Json& hello);
  void hear_members();
  void beat(bool slept);

  const Host host_;
  const std::string secret_;
  const Coordinator::Tell tell_;
  Descriptor listener_;
  std::list<Stranger> strangers_;   // oldest first
  std::map<int, Channel> members_;  // by host
  Coordinator coordinator_;
  Deadline next_beat_ = Deadline::after({0}), next_complaint_ = Deadline::after({0});
  std::atomic<bool> leave_ = false;
  std::thread thread_;
};

}  // namespace lockstep::launch

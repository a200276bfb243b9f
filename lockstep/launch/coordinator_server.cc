#include "lockstep/launch/coordinator_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

#include "lockstep/base/check.h"
#include "lockstep/comm/address.h"
#include "lockstep/launch/message.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kMostStrangers = 64;  // beside the hosts of the job
constexpr Seconds kStrangersStay = {5}, kBetweenComplaints = {10}, kParting = {2};
constexpr int kBetweenTicks = 50;  // ms
constexpr Seconds kAsleep = {3};   // this thread did not run: nobody else's silence

}  // namespace

CoordinatorServer::CoordinatorServer(const Host& host, const Policy& policy, std::string secret,
                                     Descriptor own, Coordinator::Tell tell)
    : host_(host),
      secret_(std::move(secret)),
      tell_(tell),
      listener_(host.hosts > 1 ? comm::listen_at(host.coordinator, host.port) : -1),
      coordinator_(
          policy,
          [this](int to, const Json& message) {
            if (const auto found = members_.find(to); found != members_.end())
              found->second.send(message);
          },
          std::move(tell)) {
  strangers_.emplace_back(std::move(own), secret_, Deadline::never(), true);
  thread_ = std::thread([this] { run(); });
}

CoordinatorServer::~CoordinatorServer() {
  leave_ = true;
  thread_.join();
}

void CoordinatorServer::run() {
  Deadline awake = Deadline::after(kAsleep), parting = Deadline::never();
  while (!(coordinator_.is_over() && (members_.empty() || parting.expired()))) {
    wait();
    const bool slept = awake.expired();
    awake = Deadline::after(kAsleep);
    if (leave_) coordinator_.give_up({kExitStopped});
    try {
      hear_strangers();
      hear_members();
      coordinator_.tick();
    } catch (const WorldError& error) {  // the folder of checkpoints cannot be read
      coordinator_.give_up({kExitEnvironment, error.error()});
    }
    beat(slept);
    if (coordinator_.is_over() && parting.is_never()) parting = Deadline::after(kParting);
  }
}

void CoordinatorServer::wait() {
  std::vector<pollfd> waiting;
  if (listener_ >= 0) waiting.push_back({listener_, POLLIN, 0});
  for (const Stranger& stranger : strangers_)
    waiting.push_back({stranger.channel.descriptor(), POLLIN, 0});
  for (const auto& [host, channel] : members_) waiting.push_back({channel.descriptor(), POLLIN, 0});
  ::poll(waiting.data(), waiting.size(), kBetweenTicks);
  if (listener_ >= 0 && waiting[0].revents != 0) accept_one();
}

void CoordinatorServer::accept_one() {
  Descriptor connection(::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC));
  if (connection < 0) {  // out of descriptors, perhaps: it stays in the queue
    std::this_thread::sleep_for(std::chrono::milliseconds(kBetweenTicks));
    return;
  }
  if (strangers_.size() >= kMostStrangers + host_.hosts)
    strangers_.erase(std::ranges::find_if(strangers_, [](const Stranger& s) { return !s.is_own; }));
  strangers_.emplace_back(std::move(connection), secret_, Deadline::after(kStrangersStay), false);
}

void CoordinatorServer::hear_strangers() {
  for (auto at = strangers_.begin(); at != strangers_.end();) {
    const auto hello = at->channel.receive();
    if (hello) {
      admit(*at, *hello);
    } else if (at->channel.is_open() && !at->until.expired()) {
      ++at;
      continue;
    } else if (!at->channel.is_open() && next_complaint_.expired()) {
      next_complaint_ = Deadline::after(kBetweenComplaints);
      tell_("somebody came to the coordinator who " + at->channel.why_closed());
    }
    at = strangers_.erase(at);
  }
}

void CoordinatorServer::admit(Stranger& stranger, const Json& hello) {
  const auto number = int_in(hello, "host", 0, host_.hosts - 1);
  if (text_in(hello, "is") != "hello" || !number || (*number == 0) != stranger.is_own) return;
  const int host = static_cast<int>(*number);
  Result<void> joined =
      Error{Code::kMismatchedCalls,
            join_parts("host ", host, " is of the job `", clipped(text_in(hello, "job")),
                       "`, and host 0 of `", host_.job, "`"),
            "give every job on these hosts a --master-port of its own"};
  if (text_in(hello, "job") == host_.job) joined = coordinator_.join(host, hello);
  if (!joined.ok()) {
    tell_(joined.error().message);
    return stranger.channel.send(to_json(Verdict{kExitUsage, joined.error()}));
  }
  members_.erase(host);
  members_.emplace(host, std::move(stranger.channel));
}

void CoordinatorServer::hear_members() {
  for (auto at = members_.begin(); at != members_.end();) {
    auto& [host, channel] = *at;
    while (const auto message = channel.receive()) coordinator_.hear(host, *message);
    if (host != 0 && channel.silence() > kLongestSilence)
      channel.close(join_parts("has said nothing for ", to_text(kLongestSilence)));
    if (channel.is_open()) {
      ++at;
      continue;
    }
    const int gone = host;
    const std::string why = channel.why_closed();
    at = members_.erase(at);
    coordinator_.lose(gone, why);
  }
}

void CoordinatorServer::beat(bool slept) {
  if (slept)
    for (auto& [host, channel] : members_) channel.forgive_silence();
  if (!next_beat_.expired()) return;
  next_beat_ = Deadline::after(kBetweenBeats);
  for (auto& [host, channel] : members_) channel.send(Json::object({{"is", "beat"}}));
}

}  // namespace lockstep::launch

#include "lockstep/launch/supervisor.h"

#include <poll.h>
#include <sys/socket.h>

#include <ctime>
#include <memory>
#include <optional>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/comm/address.h"
#include "lockstep/launch/channel.h"
#include "lockstep/launch/coordinator_server.h"
#include "lockstep/launch/logs.h"
#include "lockstep/launch/message.h"
#include "lockstep/launch/spares.h"

namespace lockstep::launch {
namespace {

constexpr int kBetweenLooks = 50;  // ms
constexpr int kMostRefusals = 10;  // by closing the connection before anything is said

std::string now() {
  const std::time_t time = std::time(nullptr);
  std::tm local = {};
  ::localtime_r(&time, &local);
  char text[64] = {};
  (void)std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S %z", &local);
  return text;
}

// The ranks of one generation on this host.
struct Running {
  std::int64_t generation = 0;
  std::unique_ptr<Logs> logs;  // before the ranks that write to it
  RankProcesses ranks;
  Watch watch;
  bool told = false;  // of a failure

  Running(std::int64_t number, std::unique_ptr<Logs> copies, RankProcesses processes, int first,
          const Watch::Tell& tell)
      : generation(number),
        logs(std::move(copies)),
        ranks(std::move(processes)),
        watch(ranks, first, tell, Watch::Manner::kAtOnce) {}
};

// From coming to the coordinator until the job is over or the connection is.
class Session {
 public:
  Session(const HostJob& job, Channel& channel, const Asked& asked, const Watch::Tell& tell)
      : job_(job), channel_(channel), asked_(asked), tell_(tell) {}

  std::optional<Verdict> run() {
    channel_.send(Json::object({{"is", "hello"},
                                {"job", clipped(job_.host.job)},
                                {"host", job_.host.number},
                                {"name", own_name()},
                                {"hosts", job_.host.hosts},
                                {"ranks", job_.ranks},
                                {"world", job_.policy.ranks}}));
    while (!verdict_) {
      wait();
      while (const auto message = channel_.receive()) hear(*message);
      if (!channel_.is_open()) break;
      if (running_) look();
      ask_to_stop();
      if (asked_.times >= 2) return Verdict{kExitStopped};
      beat();
    }
    return verdict_;
  }

 private:
  void wait() const {
    std::vector<pollfd> waiting;
    if (running_) waiting = running_->watch.descriptors();
    waiting.push_back({channel_.descriptor(), POLLIN, 0});
    ::poll(waiting.data(), waiting.size(), kBetweenLooks);
  }

  void hear(const Json& message) {
    const std::string is = text_in(message, "is");
    if (is == "over") verdict_ = verdict_of(message);
    if (is == "start") start(message);
    if (is == "stop") asked_elsewhere_ = true;
    if (is == "end" && running_ && int_in(message, "generation", 1) == running_->generation) {
      const Json* const at_once = message.find("at_once");
      if (at_once != nullptr && *at_once == Json(true))
        running_->watch.kill();
      else
        running_->watch.end_soon();
    }
  }

  void start(const Json& message) {
    const std::int64_t generation = int_in(message, "generation", 1).value_or(1);
    const Place place = {static_cast<int>(int_in(message, "first_rank", 0, 1 << 24).value_or(0)),
                         static_cast<int>(int_in(message, "world", 1, 1 << 24).value_or(1)),
                         text_in(message, "address"),
                         static_cast<std::uint16_t>(int_in(message, "port", 1, 65535).value_or(1)),
                         job_.host.number == 0
                             ? static_cast<int>(int_in(message, "store_socket", 0).value_or(-1))
                             : -1};
    const Json* const has = message.find("has_checkpoint");
    Job ranks = {job_.program, job_.words(generation > 1, has != nullptr && *has == Json(true)),
                 job_.ranks,   job_.environment,
                 "",           place};
    std::unique_ptr<Logs> logs;
    if (!job_.logs.empty()) {
      logs = std::make_unique<Logs>(
          job_.logs, place.first_rank, job_.ranks,
          join_parts("== start ", generation, " on ", own_name(), ", ", now(), "\n"), tell_);
      ranks.outputs = logs->outputs();
    }
    auto started = RankProcesses::start(ranks, spares_for(ranks.arguments));
    spares_.reset();  // what was not taken is of the start before
    if (logs) logs->started();
    if (!started.ok()) return refuse(generation, place.first_rank, started.error());
    running_.emplace(generation, std::move(logs), *std::move(started), place.first_rank, tell_);
  }

  Spares* spares_for(const std::vector<std::string>& arguments) {
    return spares_ && spares_->arguments() == arguments ? &*spares_ : nullptr;
  }

  // When ranks have come so far that loading beside them holds nobody up who starts.
  void prepare_spares() {
    if (!job_.has_spares || !running_->watch.all_have_stepped()) return;
    if (!spares_) spares_.emplace(job_.program, job_.words(true, true));
    spares_->prepare(job_.ranks);
  }

  void refuse(std::int64_t generation, int rank, const Error& error) {
    channel_.send(Json::object({{"is", "ended"},
                                {"generation", generation},
                                {"rank", rank},
                                {"exit", kExitEnvironment},
                                {"how", clipped(error.message)}}));
  }

  void look() {
    running_->watch.look();
    prepare_spares();
    const auto& failure = running_->watch.failure();
    if (failure && !std::exchange(running_->told, true)) channel_.send(report("failed"));
    if (!running_->watch.all_ended()) return;
    channel_.send(report("ended").set("stopped", running_->watch.stopped()));
    running_.reset();
  }

  Json report(const char* is) const {
    Json message = Json::object(
        {{"is", is}, {"generation", running_->generation}, {"steps", running_->watch.steps()}});
    const auto& failure = running_->watch.failure();
    if (!failure) return message;
    message.set("rank", failure->rank)
        .set("process", static_cast<int>(failure->process))
        .set("how", failure->how());
    if (failure->ending.exit_code) message.set("exit", *failure->ending.exit_code);
    if (failure->said)
      message.set("code", static_cast<int>(failure->said->code))
          .set("said", clipped(failure->said->message));
    return message;
  }

  void ask_to_stop() {
    if (asked_.stop && !std::exchange(told_stop_, true))
      channel_.send(Json::object({{"is", "stop"}}));
    if ((asked_.stop || asked_elsewhere_) && running_) running_->watch.ask_to_stop();
  }

  void beat() {
    if (awake_.expired()) channel_.forgive_silence();
    awake_ = Deadline::after({3});
    if (job_.host.number > 0 && channel_.silence() > kLongestSilence)
      channel_.close(join_parts("has said nothing for ", to_text(kLongestSilence)));
    if (!next_beat_.expired()) return;
    next_beat_ = Deadline::after(kBetweenBeats);
    channel_.send(running_ ? report("beat") : Json::object({{"is", "beat"}}));
  }

  const HostJob& job_;
  Channel& channel_;
  const Asked& asked_;
  const Watch::Tell& tell_;
  std::optional<Spares> spares_;
  std::optional<Running> running_;
  std::optional<Verdict> verdict_;
  bool told_stop_ = false, asked_elsewhere_ = false;
  Deadline next_beat_ = Deadline::after({0}), awake_ = Deadline::never();
};

Verdict run_first(const HostJob& job, const Asked& asked, const Watch::Tell& tell) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw IoError({Code::kUnsuitableEnvironment, "cannot make a socket: " + system_reason()});
  Channel channel(Descriptor{ends[0]}, Channel::End::kConnected, job.secret);
  CoordinatorServer server(job.host, job.policy, job.secret, Descriptor{ends[1]}, tell);
  const auto verdict = Session(job, channel, asked, tell).run();
  channel.close("is done");
  return verdict.value_or(Verdict{kExitFailed});
}

Descriptor connect_by(const HostJob& job, Deadline deadline, const Asked& asked,
                      const Watch::Tell& tell) {
  for (;;) {
    try {
      return Descriptor(comm::await_and_connect(job.host.coordinator, job.host.port, deadline,
                                                &asked.stop, tell));
    } catch (const WorldError& error) {  // a name may come to be known only when its host is up
      if (error.error().code == Code::kInterrupted || deadline.expired()) throw;
    }
    ::poll(nullptr, 0, kBetweenLooks);
  }
}

Verdict run_other(const HostJob& job, const Asked& asked, const Watch::Tell& tell) {
  const std::string where =
      join_parts("the coordinator at ", job.host.coordinator, ":", job.host.port);
  Error lost;
  int refusals = 0;
  Deadline deadline = Deadline::after(job.policy.wait);
  for (;;) {
    try {
      Channel channel(connect_by(job, deadline, asked, tell), Channel::End::kConnected, job.secret);
      if (const auto verdict = Session(job, channel, asked, tell).run()) return *verdict;
      lost = {Code::kPeerLost, join_parts("host 0 was lost: ", where, " ", channel.why_closed())};
      refusals = channel.is_trusted() ? 0 : refusals + 1;
      if (channel.is_trusted()) deadline = Deadline::after(job.policy.wait);
    } catch (const WorldError& error) {
      if (error.error().code == Code::kInterrupted) return {kExitStopped};
      return {kExitFailed, lost.message.empty() ? error.error() : lost};
    }
    if (asked.stop) return {kExitStopped};
    if (refusals >= kMostRefusals)
      return {kExitUsage, Error{Code::kMismatchedCalls,
                                where + " closes every connection before it says anything",
                                join_parts("is ", kSecret, " the same on all hosts?")}};
    if (refusals == 0)
      tell(join_parts(lost.message, "; its ranks here have ended; waiting ",
                      to_text(job.policy.wait), " for it"));
    ::poll(nullptr, 0, 2 * kBetweenLooks);
  }
}

}  // namespace

Verdict run_host(const HostJob& job, const Asked& asked, const Watch::Tell& tell) {
  return job.host.number == 0 ? run_first(job, asked, tell) : run_other(job, asked, tell);
}

}  // namespace lockstep::launch

#include "lockstep/launch/coordinator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/comm/address.h"
#include "lockstep/launch/message.h"

namespace lockstep::launch {
namespace {

constexpr Seconds kBetweenNotices = {5};
constexpr double kLongestBackoff = 60;  // s

// Restarting would bring the same again.
bool is_final(int exit_code, const std::optional<Error>& said) {
  if (exit_code == kExitUsage || exit_code == kExitEnvironment) return true;
  return said && (said->code == Code::kMismatchedCalls || said->code == Code::kDiverged);
}

}  // namespace

Coordinator::Coordinator(Policy policy, Send send, Tell tell)
    : policy_(std::move(policy)),
      send_(std::move(send)),
      tell_(std::move(tell)),
      members_(policy_.hosts),
      not_before_(Deadline::after({0})),
      gathered_by_(Deadline::after(policy_.wait)),
      tell_missing_(Deadline::after(kBetweenNotices)) {
  progress_ = std::max<std::int64_t>(0, policy_.newest_checkpoint());
}

std::string Coordinator::name_of(int host) const {
  return join_parts("host ", host, " (", members_[host].name, ")");
}

bool Coordinator::any_runs() const { return std::ranges::any_of(members_, &Member::runs); }

std::vector<int> Coordinator::missing() const {
  std::vector<int> hosts;
  for (int host = 0; host < policy_.hosts; ++host)
    if (!members_[host].is_here) hosts.push_back(host);
  return hosts;
}

void Coordinator::everyone(const Json& message) {
  for (int host = 0; host < policy_.hosts; ++host)
    if (members_[host].is_here) send_(host, message);
}

Result<void> Coordinator::join(int host, const Json& hello) {
  Member& member = members_[host];
  const std::string name = text_in(hello, "name");
  if (member.is_here)
    return Error{Code::kMismatchedCalls,
                 join_parts(name_of(host), " is here already, and ", name, " says that it is host ",
                            host, ", too"),
                 "give every host a number of its own"};
  const auto hosts = int_in(hello, "hosts", 1), world = int_in(hello, "world", 1);
  if (hosts != policy_.hosts || world != policy_.ranks)
    return Error{Code::kMismatchedCalls,
                 join_parts("host ", host, " (", name, ") means a job of ", world.value_or(0),
                            " ranks on ", hosts.value_or(0), " hosts, and host 0 one of ",
                            policy_.ranks, " on ", policy_.hosts),
                 "start `lockstep launch` with the same words and files on every host"};
  member = {true, false, name, static_cast<int>(int_in(hello, "ranks", 1, 1 << 24).value_or(1))};
  if (policy_.hosts > 1) tell_(join_parts(name_of(host), " has come"));
  if (asked_to_stop_) send_(host, Json::object({{"is", "stop"}}));
  return {};
}

void Coordinator::tick() {
  if (state_ != State::kGathering) return;
  const std::vector<int> absent = missing();
  if (asked_to_stop_) return over({kExitStopped});
  if (absent.empty()) {
    if (not_before_.expired()) start();
    return;
  }
  std::string names;
  for (std::size_t i = 0; i < std::min<std::size_t>(absent.size(), 8); ++i)
    names += (i == 0 ? "" : ", ") + std::to_string(absent[i]);
  if (absent.size() > 8) names += ", ...";
  const std::string who = join_parts(absent.size(), " of ", policy_.hosts, " hosts: ", names);
  if (gathered_by_.expired())
    return over({kExitFailed, Error{Code::kPeerLost,
                                    join_parts("missing after ", to_text(policy_.wait), ": ", who,
                                               last_reason_ ? "; " + last_reason_->error.message
                                                            : std::string()),
                                    "check that `lockstep launch` was started on each, with the "
                                    "same address, port and secret"}});
  if (!tell_missing_.expired()) return;
  tell_missing_ = Deadline::after(kBetweenNotices);
  tell_("waiting for " + who);
}

void Coordinator::start() {
  std::int64_t total = 0;
  for (const Member& member : members_) total += member.ranks;
  if (total != policy_.ranks)
    return over({kExitUsage, Error{Code::kDegreesDoNotMatchWorld,
                                   join_parts("the run file has ", policy_.ranks,
                                              " ranks, and the hosts start ", total),
                                   "--nproc is the number of ranks on one host"}});
  try {
    store_ = Descriptor(comm::listen_at(policy_.address, 0));
  } catch (const WorldError& error) {
    return over({kExitEnvironment, error.error()});
  }
  ++generation_;
  reason_.reset();
  stopped_ = false;
  const bool has_checkpoint = generation_ > 1 && policy_.newest_checkpoint() >= 0;
  int first = 0;
  state_ = State::kRunning;
  for (int host = 0; host < policy_.hosts; ++host) {
    Json message = Json::object({{"is", "start"},
                                 {"generation", generation_},
                                 {"first_rank", first},
                                 {"world", policy_.ranks},
                                 {"address", policy_.address},
                                 {"port", comm::port_of(store_)},
                                 {"has_checkpoint", has_checkpoint}});
    if (host == 0) message.set("store_socket", static_cast<int>(store_));
    first += members_[host].ranks;
    members_[host].runs = true;
    send_(host, message);
  }
}

void Coordinator::hear(int host, const Json& message) {
  const std::string is = text_in(message, "is");
  if (is == "stop") {
    if (std::exchange(asked_to_stop_, true)) return;
    return everyone(message);
  }
  if (!members_[host].runs || int_in(message, "generation", 1) != generation_) return;
  steps_ = std::max(steps_, int_in(message, "steps", 0).value_or(0));
  if (is == "failed") take_failure(host, message);
  if (is != "ended") return;
  take_failure(host, message);
  const Json* const stopped = message.find("stopped");
  if (stopped != nullptr && *stopped == Json(true)) stopped_ = true;
  members_[host].runs = false;
  if (!any_runs()) conclude();
}

// "rank 2 (process 4711) on host-b was ended by signal 9 (Killed)".
void Coordinator::take_failure(int host, const Json& message) {
  if (message.find("rank") == nullptr) return;
  const auto exit_code = int_in(message, "exit", 0, 255);
  Reason reason;
  reason.weight = exit_code ? Weight::kExit : Weight::kSignal;
  reason.exit_code = static_cast<int>(exit_code.value_or(kExitFailed));
  reason.error = {Code::kPeerLost, join_parts("rank ", int_in(message, "rank", 0).value_or(0),
                                              " on ", members_[host].name, " (process ",
                                              int_in(message, "process", 0).value_or(0), ") ",
                                              text_in(message, "how"))};
  if (const auto code = int_in(message, "code", 0))
    if (const auto known = parse_code(std::to_string(*code)))
      reason.said = Error{*known, text_in(message, "said")};
  fail(std::move(reason));
}

void Coordinator::fail(Reason reason) {
  if (!reason_ || reason.weight > reason_->weight) {
    if (reason_ && !reason.said) reason.said = reason_->said;
    reason_ = std::move(reason);
  } else if (!reason_->said) {
    reason_->said = std::move(reason.said);
  }
  end();
}

void Coordinator::end() {
  if (state_ != State::kRunning) return;
  state_ = State::kEnding;
  // Ranks that find out by themselves why they end say more of a failure than its exit code; of a
  // death all is known.
  const bool at_once = reason_ && reason_->weight != Weight::kExit;
  everyone(Json::object({{"is", "end"}, {"generation", generation_}, {"at_once", at_once}}));
}

void Coordinator::lose(int host, const std::string& why) {
  Member& member = members_[host];
  const std::string who = name_of(host);
  member.is_here = false;
  if (is_over()) return;
  tell_(join_parts(who, " is lost: its launcher ", why));
  if (!std::exchange(member.runs, false)) return;
  fail({Weight::kHost,
        kExitFailed,
        {Code::kPeerLost, join_parts(who, " was lost: its launcher ", why)}});
  if (!any_runs()) conclude();
}

void Coordinator::conclude() {
  store_ = Descriptor();
  state_ = State::kGathering;
  if (asked_to_stop_ || (stopped_ && !reason_)) {
    const bool failed = reason_ && reason_->weight == Weight::kExit;
    return over(failed ? Verdict{reason_->exit_code, reason_->error} : Verdict{kExitStopped});
  }
  if (!reason_) return over({});
  if (reason_->said)
    reason_->error.message +=
        join_parts("; ", to_text(reason_->said->code), ": ", reason_->said->message);
  restart_or_not();
}

void Coordinator::restart_or_not() {
  const Reason& why = *reason_;
  Verdict verdict{why.exit_code, why.error};
  if (why.weight == Weight::kExit && is_final(why.exit_code, why.said)) {
    verdict.error->help = "the same would happen again, so it is not restarted";
    return over(verdict);
  }
  const std::int64_t reached = std::max(policy_.newest_checkpoint(), steps_);
  in_vain_ = reached > progress_ || restarts_ == 0 ? 0 : in_vain_ + 1;
  progress_ = std::max(progress_, reached);
  if (restarts_ >= policy_.max_restarts) {
    if (policy_.max_restarts > 0)
      verdict.error->help = join_parts("restarted ", counted(restarts_, "time"),
                                       ", as often as --max-restarts allows");
    return over(verdict);
  }
  if (in_vain_ >= kMostInVain) {
    verdict.error->help =
        join_parts("restarted ", kMostInVain, " times without a newer checkpoint or a later step");
    return over(verdict);
  }
  ++restarts_;
  const Seconds pause = {
      in_vain_ == 0 ? 0
                    : std::min(kLongestBackoff, policy_.backoff.value * std::exp2(in_vain_ - 1))};
  const std::int64_t from = policy_.newest_checkpoint();
  tell_(join_parts(why.error.message, "; restart ", restarts_, " of at most ", policy_.max_restarts,
                   from < 0 ? ", from the beginning" : join_parts(" from step ", from),
                   pause.value > 0 ? ", after " + to_text(pause) : std::string()));
  last_reason_ = why;
  not_before_ = Deadline::after(pause);
  gathered_by_ = Deadline::after(policy_.wait);
  tell_missing_ = Deadline::after(kBetweenNotices);
}

void Coordinator::give_up(const Verdict& verdict) {
  if (!is_over()) over(verdict);
}

void Coordinator::over(Verdict verdict) {
  state_ = State::kOver;
  everyone(to_json(verdict));
}

Json to_json(const Verdict& verdict) {
  Json message = Json::object({{"is", "over"}, {"exit", verdict.exit_code}});
  if (verdict.error)
    message.set("code", static_cast<int>(verdict.error->code))
        .set("message", clipped(verdict.error->message))
        .set("help", clipped(verdict.error->help));
  return message;
}

Verdict verdict_of(const Json& message) {
  Verdict verdict{static_cast<int>(int_in(message, "exit", 0, 255).value_or(kExitFailed))};
  if (const auto code = int_in(message, "code", 0))
    verdict.error = Error{parse_code(std::to_string(*code)).value_or(Code::kPeerLost),
                          text_in(message, "message"), text_in(message, "help")};
  return verdict;
}

}  // namespace lockstep::launch

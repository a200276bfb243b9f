#include "lockstep/comm/c10d/meeting.h"

#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>

#include "lockstep/base/check.h"
#include "lockstep/comm/address.h"
#include "lockstep/comm/call_beside.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/texts.h"

namespace lockstep::comm {
namespace {

constexpr const char* kMeetingVerdict = "join/verdict";
constexpr Seconds kParting = {5};      // for others to read why the meeting failed
constexpr std::size_t kMostNamed = 8;  // ranks, or settings that differ

std::string key_of_arrival(int rank) { return "join/" + std::to_string(rank); }
std::string key_of_ready(int rank) { return key_of_arrival(rank) + "/ready"; }
std::string key_of_leaving(int rank) { return key_of_arrival(rank) + "/leaves"; }

std::string text_in(const Json& json, const std::string& key, const char* otherwise = "") {
  const Json* const found = json.is_object() ? json.find(key) : nullptr;
  return found != nullptr && found->is_text() ? found->as_text() : otherwise;
}

// "process 4711 on host-3".
std::string process_of(const Json& arrival) { return text_in(arrival, "process"); }

[[noreturn]] void throw_error(Error error) {
  throw CommError(std::move(error), OpKind::kBarrier, {});
}

[[noreturn]] void refuse(const std::string& message, const std::string& help) {
  throw_error({Code::kMismatchedCalls, message, help});
}

std::string named(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return ranks.size() > kMostNamed ? text + ", ..." : text;
}

}  // namespace

Meeting::Meeting(std::shared_ptr<Store> store, const Rendezvous& rendezvous, Deadline deadline,
                 const JoinOptions& options, std::function<void()> check_others)
    : store_(std::move(store)),
      rendezvous_(rendezvous),
      deadline_(deadline),
      options_(options),
      check_others_(std::move(check_others)) {}

template <class Call, class Check>
auto Meeting::ask_until(Deadline until, Check check, Call call) const {
  return call_beside(
      [store = store_, call] { return call(*store); },
      [&] {
        check();
        if (until.expired())
          throw_error({Code::kStoreLost, "the store at " + where() + " does not answer",
                       "check that rank 0 is running"});
      });
}

template <class Call>
auto Meeting::ask(Call call) const {
  return ask_until(Deadline::after(deadline_.remaining() + Seconds{1}), [this] { check(); }, call);
}

bool Meeting::has(const std::string& key) const {
  return ask([key](Store& store) { return store.has(key); });
}

std::string Meeting::get(const std::string& key) const {
  return ask([key](Store& store) { return store.get(key); });
}

void Meeting::leave(const std::string& key, const std::string& text) {
  ask([key, text](Store& store) { return store.set(key, text), true; });
}

void Meeting::check() const {
  check_others_();
  if (options_.stop != nullptr && *options_.stop)
    throw_error({Code::kInterrupted, "asked to stop while ranks meet at " + where()});
}

std::string Meeting::where() const { return join_parts(rendezvous_.host, ":", rendezvous_.port); }

void Meeting::arrive(const std::string& address) {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  std::random_device device;
  Json facts = Json::object();
  for (const auto& [name, value] : options_.facts) facts.set(name, value);
  const std::string text =
      Json::object({{"process", join_parts("process ", ::getpid(), " on ", host)},
                    {"nonce", join_parts(device(), "-", device())},
                    {"address", address},
                    {"facts", std::move(facts)}})
          .dump();
  const std::string there = ask([key = key_of_arrival(rendezvous_.rank.value), text](Store& store) {
    return store.set_once(key, text);
  });
  if (there == text) return;
  const Result<Json> other = Json::parse(there);
  refuse(join_parts("rank ", rendezvous_.rank.value, " has come to ", where(),
                    " already: ", other.ok() ? process_of(*other) : std::string("another process")),
         "start every rank once, and jobs that run side by side with a MASTER_PORT of their own");
}

std::string Meeting::await(const std::string& key) {
  NextNotice notice;
  const Deadline until = Deadline::after(deadline_.remaining() + Seconds{1});
  while (!has(key)) {
    try {
      pause(notice,
            join_parts("rank ", rendezvous_.rank.value, " waits at ", where(), " for the others"));
    } catch (const WorldError&) {  // what rank 0 left says more than that a rank is lost
      if (!has(key)) throw;
    }
    if (until.expired())
      throw_error({Code::kStoreLost, "rank 0 at " + where() + " said nothing before time was up",
                   "check that rank 0 is running"});
  }
  return get(key);
}

std::string Meeting::await_verdict() {
  try {
    const Result<std::string> verdict = decoded(await(kMeetingVerdict));
    if (!verdict.ok()) throw_error(verdict.error());
    return *verdict;
  } catch (const WorldError&) {
    give_up();
    throw;
  }
}

void Meeting::give_up() const noexcept {
  try {
    ask_until(
        Deadline::after(Seconds{1}), [] {},
        [key = key_of_leaving(rendezvous_.rank.value)](Store& store) {
          return store.set(key, ""), true;
        });
  } catch (const std::exception&) {  // rank 0 waits in vain, but not for long
  }
}

void Meeting::await_others(std::optional<Rank> lost) const noexcept {
  const Deadline until = Deadline::after(kParting);
  const auto has_key = [&](const std::string& key) {
    return ask_until(until, [] {}, [key](Store& store) { return store.has(key); });
  };
  try {
    for (int rank = 1; rank < rendezvous_.world_size; ++rank)
      while (lost != Rank{rank} && has_key(key_of_ready(rank)) && !has_key(key_of_leaving(rank)) &&
             !until.expired())
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
  } catch (const std::exception&) {  // nobody can be told
  }
}

std::string Meeting::conclude() {
  leave(key_of_ready(rendezvous_.rank.value), "");
  if (rendezvous_.rank != Rank{0}) return await_verdict();
  try {
    const std::map<int, Json> arrived = await_all();
    compare(arrived);
    std::string far;
    for (const auto& [rank, arrival] : arrived)
      if (const std::string address = text_in(arrival, "address");
          far.empty() && !address.empty() && !is_loopback(address))
        far = address;
    leave(kMeetingVerdict, encoded(far));
    return far;
  } catch (const WorldError& error) {
    leave(kMeetingVerdict, encoded(error.error()));
    const auto* const lost = dynamic_cast<const CommError*>(&error);
    await_others(lost != nullptr ? lost->culprit() : std::nullopt);
    throw;
  }
}

std::map<int, Json> Meeting::await_all() {
  std::map<int, Json> arrived;
  NextNotice notice;
  for (;;) {
    std::vector<int> missing;
    for (int rank = 0; rank < rendezvous_.world_size; ++rank) {
      if (arrived.contains(rank)) continue;
      if (!has(key_of_ready(rank))) {
        missing.push_back(rank);
        continue;
      }
      Result<Json> read = Json::parse(get(key_of_arrival(rank)));
      arrived.emplace(rank, read.ok() ? *std::move(read) : Json::object());
    }
    if (missing.empty()) return arrived;
    const std::string absent =
        join_parts(missing.size(), " of ", rendezvous_.world_size, " ranks: ", named(missing));
    pause(notice, "waiting at " + where() + " for " + absent);
    if (deadline_.expired())
      throw_error(
          {Code::kStoreLost, "missing at " + where() + " when time was up: " + absent,
           "check that every rank was started, with MASTER_ADDR and MASTER_PORT of rank 0"});
  }
}

void Meeting::compare(const std::map<int, Json>& arrived) const {
  for (const auto& [rank, arrival] : arrived) {
    const Json* const facts = arrival.find("facts");
    std::vector<std::string> differences;
    for (const auto& [name, value] : options_.facts)
      if (const std::string theirs = text_in(facts != nullptr ? *facts : Json(), name, "absent");
          theirs != value)
        differences.push_back(join_parts(name, " is ", theirs, " there and ", value, " on rank 0"));
    if (differences.empty()) continue;
    std::string text = join_parts("rank ", rank, " (", process_of(arrival), ") means another job");
    const std::size_t shown = std::min(differences.size(), kMostNamed);
    for (std::size_t i = 0; i < shown; ++i) text += (i == 0 ? ": " : "; ") + differences[i];
    if (differences.size() > shown)
      text += join_parts("; and ", differences.size() - shown, " more");
    refuse(text, "start every rank with the same binary and settings");
  }
}

void Meeting::pause(NextNotice& notice, const std::string& text) const {
  check();
  if (notice.due.expired()) {
    notice.due = Deadline::after(notice.after);  // twice as long since the begin
    notice.after.value *= 2;
    if (options_.tell) options_.tell(text);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace lockstep::comm

#include "lockstep/launch/watch.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::launch {
namespace {

constexpr int kTerminated = 143;  // the exit code of a rank that stopped as it was asked

// For ranks to end by themselves after the first has failed, and where a signal ended that one.
// They notice within a second; but where it died before it came, they wait for it.
constexpr Seconds kPatience = {5}, kPatienceWithTheDead = {1.5};
constexpr Seconds kBetweenStops = {0.1};
constexpr Seconds kAfterWords = {0.1};  // once one of them has said what the dead one was at
constexpr int kBetweenChecks = 100;     // ms

}  // namespace

std::string Failure::how() const {
  if (ending.exit_code) return join_parts("ended with exit code ", *ending.exit_code);
  return join_parts("was ended by signal ", ending.signal, " (", ::strsignal(ending.signal), ")");
}

Watch::Watch(RankProcesses& ranks, int first, Tell tell)
    : ranks_(ranks),
      first_(first),
      tell_(std::move(tell)),
      reports_(ranks.size()),
      ended_(ranks.size()),
      running_(ranks.size()) {}

std::vector<pollfd> Watch::descriptors() const {
  std::vector<pollfd> all;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (!ended_[rank]) all.push_back({ranks_.ended(Rank{rank}), POLLIN, 0});
    if (!reports_[rank].ended()) all.push_back({ranks_.reports(Rank{rank}), POLLIN, 0});
  }
  return all;
}

void Watch::look() {
  hear();
  look_for_endings();
  if (next_look_.expired()) look_for_stopped();
  if (in_vain_ && said_) patience_ = std::min(patience_, Deadline::after(kAfterWords));
  if (patience_.expired() && !all_ended()) kill();
}

void Watch::hear() {
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    reports_[rank].read(ranks_.reports(Rank{rank}));
    said_ = said_ || reports_[rank].error();
    if (failure_ && !failure_->said) failure_->said = reports_[rank].error();
  }
}

void Watch::look_for_endings() {
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (ended_[rank]) continue;
    const auto ending = ranks_.wait(Rank{rank}, Deadline::after(Seconds{0}));
    if (!ending) continue;
    ended_[rank] = true;
    --running_;
    reports_[rank].read(ranks_.reports(Rank{rank}));
    if (ending->ok() || killed_) continue;
    if (ending->exit_code == kTerminated)
      stopped_ = true;
    else
      note(rank, *ending);
    in_vain_ = in_vain_ || !ending->exit_code;
    if (patience_.is_never())
      patience_ = Deadline::after(ending->exit_code ? kPatience : kPatienceWithTheDead);
  }
}

void Watch::note(int rank, const RankProcesses::Ending& ending) {
  if (!failure_ || (failure_->ending.exit_code && !ending.exit_code)) {
    const std::optional<Error> said = failure_ ? failure_->said : std::nullopt;
    failure_ = {first_ + rank, ranks_.pid(Rank{rank}), ending,
                reports_[rank].error() ? reports_[rank].error() : said};
  }
}

// A rank that stands still is named, and does not keep those from ending who were asked to.
void Watch::look_for_stopped() {
  next_look_ = Deadline::after(kBetweenStops);
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (ended_[rank] || !ranks_.is_stopped(Rank{rank})) continue;
    if (told_stopped_.insert(rank).second)
      tell_(
          join_parts("rank ", first_ + rank, " (process ", ranks_.pid(Rank{rank}), ") is stopped"));
    if (asked_ && patience_.is_never()) patience_ = Deadline::after(kPatience);
  }
}

void Watch::ask_to_stop() {
  if (std::exchange(asked_, true)) return;
  for (int rank = 0; rank < ranks_.size(); ++rank) ranks_.signal(Rank{rank}, SIGUSR1);
}

void Watch::end_soon() {
  in_vain_ = true;
  if (patience_.is_never()) patience_ = Deadline::after(kPatienceWithTheDead);
}

void Watch::kill() {
  for (int rank = 0; rank < ranks_.size(); ++rank)
    if (!ended_[rank]) ranks_.signal(Rank{rank}, SIGKILL);
  killed_ = true;
}

std::int64_t Watch::steps() const {
  std::int64_t most = 0;
  for (const Reports& reports : reports_) most = std::max(most, reports.steps());
  return most;
}

Result<Outcome> run_ranks(const Job& job, const Asked& asked, const Watch::Tell& tell) {
  auto ranks = LS_TRY(RankProcesses::start(job));
  Watch watch(ranks, 0, tell);
  while (!watch.all_ended()) {
    auto waiting = watch.descriptors();
    ::poll(waiting.data(), waiting.size(), kBetweenChecks);
    watch.look();
    if (asked.stop) watch.ask_to_stop();
    if (asked.times >= 2) watch.kill();
  }
  return Outcome{watch.failure(), watch.stopped() || watch.killed()};
}

}  // namespace lockstep::launch

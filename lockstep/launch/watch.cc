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
constexpr Seconds kBetweenSights = {0.05};
constexpr Seconds kAfterWords = {0.1};  // once one of them has said what the dead one was at
constexpr int kBetweenChecks = 50;      // ms

}  // namespace

std::string Failure::how() const {
  const std::string behind = where.empty() ? "" : " " + where;
  if (!found.empty()) return join_parts(found, behind, ", and was killed");
  if (ending.exit_code) return join_parts("ended with exit code ", *ending.exit_code, behind);
  return join_parts("was ended by signal ", ending.signal, " (", ::strsignal(ending.signal), ")",
                    behind);
}

Watch::Watch(RankProcesses& ranks, int first, Tell tell, Manner manner)
    : ranks_(ranks),
      first_(first),
      tell_(std::move(tell)),
      manner_(manner),
      reports_(ranks.size()),
      stillness_(ranks.size()),
      found_(ranks.size()),
      slowness_(ranks.size()),
      ended_(ranks.size()),
      running_(ranks.size()) {}

std::vector<pollfd> Watch::descriptors() const {
  std::vector<pollfd> all = {{ranks_.deaths(), POLLIN, 0}};
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (!ended_[rank]) all.push_back({ranks_.ended(Rank{rank}), POLLIN, 0});
    if (!reports_[rank].ended()) all.push_back({ranks_.reports(Rank{rank}), POLLIN, 0});
  }
  return all;
}

void Watch::look() {
  hear();
  look_for_deaths();
  look_for_endings();
  if (next_look_.expired()) look_at_ranks();
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

// One that leaves by itself is waited for: its exit code says what it was.
void Watch::look_for_deaths() {
  std::uint64_t count = 0;
  (void)!::read(ranks_.deaths(), &count, sizeof count);
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_.has_died(Rank{rank}) || ended_[rank] || !dying_.insert(rank).second) continue;
    if (manner_ != Manner::kAtOnce || first_dead_ || killed_ ||
        ranks_.page(Rank{rank}).look().leaves)
      continue;
    first_dead_ = rank;
    kill();
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
    const bool is_first = rank == first_dead_;
    if (!is_first && (ending->ok() || killed_)) continue;
    if (!is_first && ending->exit_code == kTerminated)
      stopped_ = true;
    else
      note(rank, *ending);
    in_vain_ = in_vain_ || !ending->exit_code;
    if (manner_ == Manner::kAtOnce && !ending->exit_code && !killed_) kill();
    if (patience_.is_never())
      patience_ = Deadline::after(ending->exit_code ? kPatience : kPatienceWithTheDead);
  }
}

void Watch::note(int rank, const RankProcesses::Ending& ending) {
  if (!failure_ || (failure_->ending.exit_code && !ending.exit_code)) {
    const std::optional<Error> said = failure_ ? failure_->said : std::nullopt;
    failure_ = {first_ + rank, ranks_.pid(Rank{rank}),
                ending,        reports_[rank].error() ? reports_[rank].error() : said,
                found_[rank],  where(rank)};
  }
}

std::string Watch::name_of(int rank) const {
  return join_parts("rank ", first_ + rank, " (process ", ranks_.pid(Rank{rank}), ")");
}

std::string Watch::where(int rank) const {
  const Page& page = ranks_.page(Rank{rank});
  const Sight sight = page.look();
  if (!sight.holds) return "";
  return where_text(sight.position, page.op_text(sight.position ? sight.position->op : 0));
}

bool Watch::all_have_stepped() const {
  for (int rank = 0; rank < ranks_.size(); ++rank)
    if (!stillness_[rank].has_stepped()) return false;
  return true;
}

void Watch::look_at_ranks() {
  const SteadyPoint now = std::chrono::steady_clock::now();
  const double since = looked_ ? std::chrono::duration<double>(now - *looked_).count() : 0;
  const Seconds late = {std::max(0.0, since - 2 * kBetweenSights.value)};
  looked_ = now;
  next_look_ = Deadline::after(kBetweenSights);
  for (int rank = 0; rank < ranks_.size(); ++rank)
    if (!ended_[rank] && !dying_.contains(rank)) look_at(rank, late);
  name_slow();
}

// A rank that is stopped is named, and does not keep those from ending who were asked to.
void Watch::look_at(int rank, Seconds late) {
  ranks_.watch_page(Rank{rank});
  const char state = ranks_.state(Rank{rank});
  const Run run = state == 'T' ? Run::kStopped : state == 't' ? Run::kTraced : Run::kRuns;
  if (run != Run::kRuns) {
    if (told_stopped_.insert(rank).second) tell_(name_of(rank) + " is stopped");
    if (asked_ && patience_.is_never()) patience_ = Deadline::after(kPatience);
  } else {
    told_stopped_.erase(rank);
  }
  const auto wrong = stillness_[rank].look(ranks_.page(Rank{rank}).look(), run,
                                           std::chrono::steady_clock::now(), late);
  if (!wrong || manner_ != Manner::kAtOnce || killed_ || !found_[rank].empty()) return;
  found_[rank] = *wrong;
  ranks_.signal(Rank{rank}, SIGKILL);
}

void Watch::name_slow() {
  std::vector<bool> busy;
  for (int rank = 0; rank < ranks_.size(); ++rank)
    busy.push_back(!ended_[rank] && is_busy(ranks_.page(Rank{rank}).look()));
  if (const auto slow = slowness_.look(busy))
    tell_(join_parts(name_of(slow->rank), " is slow: it computes ", strf("%.1f", slow->ratio),
                     " times as long as the median rank here"));
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
    if (!ended_[rank] && !dying_.contains(rank)) ranks_.signal(Rank{rank}, SIGKILL);
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

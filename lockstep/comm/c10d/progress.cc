#include "lockstep/comm/c10d/progress.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "lockstep/comm/call_beside.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBeat{100};
constexpr milliseconds kSilence{400};    // four beats: longer silence is no scheduling hiccup
constexpr milliseconds kPatience{850};   // for a whole investigation
constexpr milliseconds kGlance{300};     // for reading all words once
constexpr milliseconds kHostStays{800};  // after a failure, for the sake of the others
constexpr milliseconds kStuck{1000};     // a store that takes no word for so long does not answer
constexpr std::size_t kWordsAtOnce = 1024;
constexpr Seconds kWorthTelling = {2};  // without a heartbeat
constexpr const char* kVerdictKey = "progress/verdict";

constexpr const char* kNoAnswer = "does not answer";

struct NoAnswer : std::exception {};

// What `call` returns, which must own all that it uses; throws NoAnswer after `patience`.
template <class Call>
auto call_within(milliseconds patience, Call call) {
  const auto end = std::chrono::steady_clock::now() + patience;
  return call_beside(std::move(call), [end] {
    if (std::chrono::steady_clock::now() > end) throw NoAnswer();
  });
}

std::string key_of(Rank rank) { return "progress/" + std::to_string(rank.value); }

}  // namespace

// Outlives the board when a thread is stuck in a call to a store that will never answer.
struct ProgressBoard::Shared {
  Rendezvous rendezvous;
  std::shared_ptr<const PositionCell> position;
  std::unique_ptr<Store> writer, reader;
  milliseconds period{kBeat};

  std::mutex calling;    // held during a call of either, and to change them; never within `mutex`
  OnVerdict on_verdict;  // none once the board is gone
  OnSilence on_silence;

  struct Seen {
    std::uint64_t beat = 0;
    SteadyPoint since = {};
    Seconds told = {};  // how long it had been silent when that was told
  };
  std::map<Rank, Seen> seen;  // of the writing thread alone, as is the next
  int next_block = 0;

  std::mutex mutex;  // guards the rest
  std::condition_variable wake;
  bool stop = false;
  bool leaving = false;
  bool writer_ended = false;
  std::uint64_t beat = 0;
  std::uint64_t next_key = 0;
  std::map<std::uint64_t, std::pair<Rank, std::string>> waits;  // oldest first
  std::optional<Blame> verdict;
  bool to_publish = false;  // the verdict, by the writing thread
  std::optional<Rank> died;
  SteadyPoint written = std::chrono::steady_clock::now();
  Seconds silence_limit = {};       // 0: nobody watches
  std::vector<LastSeen> last_seen;  // at the search for the culprit

  bool hosts_store() const { return rendezvous.rank == Rank{0} && !rendezvous.agent_hosts_store; }

  void write_word(Store& store) {
    ProgressWord word;
    {
      std::lock_guard lock(mutex);
      word.beat = leaving ? 0 : ++beat;
      word.knows_verdict = verdict.has_value();
      if (position) word.position = position->get();
      if (!waits.empty()) {
        word.waits_for = waits.begin()->second.first;
        word.operation = waits.begin()->second.second;
      }
    }
    store.set(key_of(rendezvous.rank), to_text(word));
    const std::lock_guard lock(mutex);
    written = std::chrono::steady_clock::now();
  }

  // A failure that was not found by a search of this rank's own.
  void settle(const Blame& blame, bool publish) {
    {
      const std::lock_guard lock(mutex);
      if (verdict) return;
      verdict = blame;
      to_publish = publish;
    }
    wake.notify_all();
    const std::lock_guard lock(calling);
    if (on_verdict) on_verdict(blame);
  }

  void publish_verdict() {
    std::optional<Blame> own;
    {
      const std::lock_guard lock(mutex);
      if (std::exchange(to_publish, false)) own = verdict;
    }
    if (own) writer->set_once(kVerdictKey, to_text(*own));
  }

  void learn_verdict() {
    {
      std::lock_guard lock(mutex);
      if (verdict) return;
    }
    if (const std::optional<Blame> found = published_verdict(*writer)) settle(*found, false);
  }

  std::optional<Blame> published_verdict(Store& store) const {
    if (!store.has(kVerdictKey)) return std::nullopt;
    return parse_blame(store.get(kVerdictKey), rendezvous.world_size);
  }

  void keep_writing() {
    std::unique_lock lock(mutex);
    while (!stop) {
      wake.wait_for(lock, period, [this] { return stop || to_publish || died; });
      if (stop && !to_publish) break;
      const std::optional<Rank> dead = std::exchange(died, std::nullopt);
      lock.unlock();
      try {
        publish_verdict();
        learn_verdict();
        if (dead) settle(silent(*dead), true);
        write_word(*writer);
        watch_others();
      } catch (const std::exception&) {
        settle(dead ? silent(*dead) : blame_store("is gone"), false);
        lock.lock();
        break;
      }
      lock.lock();
    }
    lock.unlock();
    say_goodbye();
    lock.lock();
    writer_ended = true;
    wake.notify_all();
  }

  Blame blame_store(const char* what) const {
    const char* const host = rendezvous.agent_hosts_store ? "the launcher" : "rank 0";
    return {Rank{0}, join_parts("the store of ", host, " ", what)};
  }

  // Beside the writing thread, which is stuck when the store's host is stopped.
  void watch_store(Seconds limit) {
    std::unique_lock lock(mutex);
    const std::chrono::duration<double> longest(limit.value);
    while (!wake.wait_for(lock, period, [this] { return stop || verdict.has_value(); })) {
      if (std::chrono::steady_clock::now() - written < longest) continue;
      lock.unlock();
      return settle(blame_store(kNoAnswer), false);
    }
  }

  // Some of the ranks at a time; all of them where that is little work.
  void watch_others() {
    Seconds limit;
    {
      const std::lock_guard lock(mutex);
      if (silence_limit.value == 0 || verdict) return;
      limit = silence_limit;
    }
    std::vector<Rank> ranks;
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < kWordsAtOnce && std::cmp_less(i, rendezvous.world_size); ++i) {
      ranks.push_back(Rank{next_block});
      keys.push_back(key_of(ranks.back()));
      next_block = (next_block + 1) % rendezvous.world_size;
    }
    const std::vector<std::string> texts = writer->get_all(keys);
    for (std::size_t i = 0; i < ranks.size(); ++i)
      if (ranks[i] != rendezvous.rank)
        judge(ranks[i], parse_word(texts[i], rendezvous.world_size), limit);
  }

  void judge(Rank rank, const std::optional<ProgressWord>& word, Seconds limit) {
    const SteadyPoint now = std::chrono::steady_clock::now();
    Seen& last = seen.try_emplace(rank, Seen{0, now, {}}).first->second;
    if (word && word->beat != last.beat) last = {word->beat, now, {}};
    if (word && word->beat == 0) return;  // has left
    const Seconds silence = {std::chrono::duration<double>(now - last.since).count()};
    if (silence >= limit) return settle(silent(rank), true);
    if (silence < kWorthTelling || silence.value < 2 * last.told.value) return;
    last.told = silence;
    const std::lock_guard lock(calling);
    if (on_silence) on_silence(rank, silence);
  }

  // A rank that has left is not to be taken for one that died.
  void say_goodbye() {
    {
      std::lock_guard lock(mutex);
      leaving = true;
    }
    try {
      write_word(*writer);
    } catch (const std::exception&) {  // the store has left first
    }
  }

  ProgressWords read_words(const std::vector<Rank>& ranks) const {
    ProgressWords words;
    for (const Rank rank : ranks) {
      const std::string key = key_of(rank);
      words[rank] =
          reader->has(key) ? parse_word(reader->get(key), rendezvous.world_size) : std::nullopt;
    }
    return words;
  }

  // Above 1024 ranks only the suspect is read, so that a failure does not cost the store world x
  // world reads.
  std::vector<Rank> witnesses(Rank suspect) const {
    if (rendezvous.world_size > 1024) return {suspect};
    std::vector<Rank> ranks;
    for (int r = 0; r < rendezvous.world_size; ++r) ranks.push_back(Rank{r});
    return ranks;
  }

  Blame investigate(Rank suspect) {
    if (const auto known = published_verdict(*reader)) return *known;
    const std::vector<Rank> ranks = witnesses(suspect);
    const ProgressWords before = read_words(ranks);
    std::this_thread::sleep_for(kSilence);
    const ProgressWords after = read_words(ranks);
    const Blame own = follow_waits(rendezvous.rank, suspect, before, after);
    const Blame blame =
        parse_blame(reader->set_once(kVerdictKey, to_text(own)), rendezvous.world_size)
            .value_or(own);
    const std::lock_guard lock(mutex);
    if (ranks.size() == static_cast<std::size_t>(rendezvous.world_size))
      last_seen = to_last_seen(after, blame, rendezvous.world_size);
    return blame;
  }

  // Empty where there are too many words to read.
  std::vector<LastSeen> look_around() {
    const std::vector<Rank> ranks = witnesses(Rank{0});
    if (ranks.size() != static_cast<std::size_t>(rendezvous.world_size)) return {};
    const ProgressWords words = read_words(ranks);
    const std::lock_guard lock(mutex);
    return to_last_seen(words, verdict, rendezvous.world_size);
  }

  // Blocks until every other rank has left or, after a failure, every survivor knows the verdict;
  // at most kHostStays. Whether they do.
  bool stay_for_others(const std::optional<Blame>& known) const {
    const auto needs_store = [&](Rank rank, const std::optional<ProgressWord>& word) {
      if (rank == rendezvous.rank || (word && word->beat == 0)) return false;
      return !known || (!(word && word->knows_verdict) && rank != known->rank);
    };
    const Deadline deadline = Deadline::after(Seconds{kHostStays.count() / 1000.0});
    const std::vector<Rank> ranks = witnesses(known ? known->rank : rendezvous.rank);
    while (!deadline.expired()) {
      bool alone = true;
      for (const auto& [rank, word] : read_words(ranks)) alone = alone && !needs_store(rank, word);
      if (alone) return true;
      std::this_thread::sleep_for(milliseconds(20));
    }
    return false;
  }
};

ProgressBoard::ProgressBoard(const Store& store, const Rendezvous& rendezvous, Deadline deadline,
                             std::shared_ptr<const PositionCell> position, OnVerdict on_verdict)
    : shared_(std::make_shared<Shared>()) {
  shared_->on_verdict = std::move(on_verdict);
  shared_->rendezvous = rendezvous;
  shared_->position = std::move(position);
  shared_->period = std::min(kBeat * (1 + rendezvous.world_size / 256), kSilence / 3);
  shared_->writer = store.connect_again(deadline);
  shared_->reader = store.connect_again(deadline);
  shared_->write_word(*shared_->writer);
  std::thread([shared = shared_] { shared->keep_writing(); }).detach();
}

ProgressBoard::~ProgressBoard() {
  {
    const std::lock_guard lock(shared_->calling);
    shared_->on_verdict = nullptr;
    shared_->on_silence = nullptr;
  }
  std::unique_lock lock(shared_->mutex);
  if (shared_->hosts_store()) {
    const std::optional<Blame> known = shared_->verdict;
    lock.unlock();
    try {
      call_within(kHostStays, [shared = shared_, known] { return shared->stay_for_others(known); });
    } catch (const std::exception&) {  // nothing that a store does may keep a destructor
    }
    lock.lock();
  }
  shared_->stop = true;
  shared_->wake.notify_all();
  // A writer that does not end is stuck in a dead store; it keeps what it uses alive.
  shared_->wake.wait_for(lock, milliseconds(100), [&] { return shared_->writer_ended; });
}

void ProgressBoard::report_death(Rank rank) {
  const std::lock_guard lock(shared_->mutex);
  if (!shared_->died) shared_->died = rank;
  shared_->wake.notify_all();
}

void ProgressBoard::watch_beats(Seconds limit, OnSilence on_silence) {
  if (shared_->rendezvous.rank != Rank{0}) {
    std::thread([shared = shared_, limit] { shared->watch_store(limit); }).detach();
    return;
  }
  {
    const std::lock_guard lock(shared_->calling);
    shared_->on_silence = std::move(on_silence);
  }
  const std::lock_guard lock(shared_->mutex);
  shared_->silence_limit = limit;
}

ProgressBoard::Waiting::Waiting(ProgressBoard& board, Rank peer, const std::string& operation)
    : board_(board) {
  std::lock_guard lock(board_.shared_->mutex);
  key_ = board_.shared_->next_key++;
  board_.shared_->waits.emplace(key_, std::pair(peer, operation));
}

ProgressBoard::Waiting::~Waiting() {
  std::lock_guard lock(board_.shared_->mutex);
  board_.shared_->waits.erase(key_);
}

std::vector<LastSeen> ProgressBoard::last_seen() {
  {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->last_seen.empty()) return shared_->last_seen;
    if (std::chrono::steady_clock::now() - shared_->written > kStuck) return {};
  }
  try {
    return call_within(kGlance, [shared = shared_] { return shared->look_around(); });
  } catch (const std::exception&) {
    return {};
  }
}

Blame ProgressBoard::find_culprit(Rank suspect) {
  const std::shared_ptr<Shared> shared = shared_;
  {
    std::lock_guard lock(shared->mutex);
    if (shared->verdict) return *shared->verdict;
    if (std::chrono::steady_clock::now() - shared->written > kStuck)
      return shared->verdict.emplace(shared->blame_store(kNoAnswer));
  }
  // Others may follow this rank's word meanwhile.
  const Waiting waiting(*this, suspect, "the search for a culprit");
  Blame blame;
  try {
    blame = call_within(kPatience, [shared, suspect] {
      const Blame found = shared->investigate(suspect);
      {
        std::lock_guard lock(shared->mutex);
        if (!shared->verdict) shared->verdict = found;
      }
      shared->write_word(*shared->reader);  // the store's host need not stay for this rank then
      return found;
    });
  } catch (const NoAnswer&) {
    blame = shared->blame_store(kNoAnswer);
  } catch (const std::exception&) {
    blame = shared->blame_store("is gone");
  }
  std::lock_guard lock(shared->mutex);
  if (!shared->verdict) shared->verdict = blame;
  return *shared->verdict;
}

}  // namespace lockstep::comm

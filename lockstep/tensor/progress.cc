#include "lockstep/tensor/progress.h"

#include <algorithm>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "lockstep/tensor/store.h"

namespace lockstep::tensor {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBeat{100};
constexpr milliseconds kSilence{400};    // four beats: longer silence is no scheduling hiccup
constexpr milliseconds kPatience{850};   // for a whole investigation
constexpr milliseconds kGlance{300};     // for reading all words once
constexpr milliseconds kHostStays{800};  // after a failure, for the sake of the others
constexpr const char* kVerdictKey = "progress/verdict";
constexpr std::string_view kSilent = " shows no sign of life";

std::string key_of(Rank rank) { return "progress/" + std::to_string(rank.value); }
std::string name_of(Rank rank) { return "rank " + std::to_string(rank.value); }

// A progress word: "<beat, 0 after leaving> <rank waited for, or -1> <1 when the verdict is known>
// <step> <op> <1 when it waits there> <operation>", step and op -1 when there is no position.
struct Word {
  std::uint64_t beat = 0;
  int waits_for = -1;
  bool knows_verdict = false;
  comm::Position position = {-1, -1};
  std::string operation = {};
};

std::string to_text(const Word& word) {
  std::ostringstream out;
  out << word.beat << ' ' << word.waits_for << ' ' << word.knows_verdict << ' '
      << word.position.step << ' ' << word.position.op << ' ' << word.position.waits << ' '
      << word.operation;
  return out.str();
}

Word parse_word(const std::string& text) {
  std::istringstream in(text);
  Word word;
  in >> word.beat >> word.waits_for >> word.knows_verdict >> word.position.step >>
      word.position.op >> word.position.waits;
  std::getline(in >> std::ws, word.operation);
  return word;
}

constexpr std::uint64_t kNeverWrote = ~std::uint64_t{0};

// A verdict: "<rank> <sentence>".
std::string to_text(const Blame& blame) {
  return std::to_string(blame.rank.value) + " " + blame.verdict;
}

Blame parse_blame(const std::string& text) {
  std::istringstream in(text);
  Blame blame;
  in >> blame.rank.value;
  std::getline(in >> std::ws, blame.verdict);
  return blame;
}

}  // namespace

// Outlives the board when a thread is stuck in a call to a store that will never answer.
struct ProgressBoard::Shared {
  comm::Rendezvous rendezvous;
  std::shared_ptr<const comm::PositionCell> position;
  std::unique_ptr<Store> writer, reader;
  milliseconds period{kBeat};

  std::mutex mutex;  // guards the rest
  std::condition_variable wake;
  bool stop = false;
  bool leaving = false;
  bool writer_ended = false;
  std::uint64_t beat = 0;
  std::uint64_t next_key = 0;
  std::map<std::uint64_t, std::pair<Rank, std::string>> waits;  // oldest first
  std::optional<Blame> verdict;
  std::vector<comm::Sighting> sightings;  // at the search for the culprit

  bool hosts_store() const { return rendezvous.rank == Rank{0} && !rendezvous.agent_hosts_store; }

  void write_word(Store& store) {
    Word word;
    {
      std::lock_guard lock(mutex);
      word.beat = leaving ? 0 : ++beat;
      word.knows_verdict = verdict.has_value();
      if (position) word.position = position->get().value_or(word.position);
      if (!waits.empty()) {
        word.waits_for = waits.begin()->second.first.value;
        word.operation = waits.begin()->second.second;
      }
    }
    store.set(key_of(rendezvous.rank), to_text(word));
  }

  void learn_verdict() {
    {
      std::lock_guard lock(mutex);
      if (verdict) return;
    }
    if (!writer->has(kVerdictKey)) return;
    Blame found = parse_blame(writer->get(kVerdictKey));
    std::lock_guard lock(mutex);
    verdict = std::move(found);
  }

  void keep_writing() {
    std::unique_lock lock(mutex);
    while (!stop) {
      wake.wait_for(lock, period, [this] { return stop; });
      if (stop) break;
      lock.unlock();
      try {
        learn_verdict();
        write_word(*writer);
      } catch (
          const std::exception&) {  // no store: a survivor finds out on its own when it needs to
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

  // A rank that never wrote one has an empty word, which reads as silent.
  std::vector<Word> read_words(const std::vector<Rank>& ranks) const {
    std::vector<Word> words;
    for (const Rank rank : ranks)
      words.push_back(reader->has(key_of(rank)) ? parse_word(reader->get(key_of(rank)))
                                                : Word{.beat = kNeverWrote});
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
    if (reader->has(kVerdictKey)) return parse_blame(reader->get(kVerdictKey));
    const std::vector<Rank> ranks = witnesses(suspect);
    const std::vector<Word> before = read_words(ranks);
    std::this_thread::sleep_for(kSilence);
    const std::vector<Word> after = read_words(ranks);
    const Blame blame =
        parse_blame(reader->set_once(kVerdictKey, to_text(follow(suspect, ranks, before, after))));
    const std::lock_guard lock(mutex);
    if (ranks.size() == static_cast<std::size_t>(rendezvous.world_size))
      sightings = to_sightings(after, blame);
    return blame;
  }

  static std::vector<comm::Sighting> to_sightings(const std::vector<Word>& words,
                                                  const std::optional<Blame>& blame) {
    std::vector<comm::Sighting> all(words.size());
    for (std::size_t i = 0; i < words.size(); ++i)
      if (words[i].position.step >= 0) all[i].position = words[i].position;
    if (blame && blame->verdict.ends_with(kSilent))
      all[static_cast<std::size_t>(blame->rank.value)].is_silent = true;
    return all;
  }

  // Empty where there are too many words to read.
  std::vector<comm::Sighting> look_around() {
    const std::vector<Rank> ranks = witnesses(Rank{0});
    if (ranks.size() != static_cast<std::size_t>(rendezvous.world_size)) return {};
    const std::vector<Word> words = read_words(ranks);
    const std::lock_guard lock(mutex);
    return to_sightings(words, verdict);
  }

  // Along the waits to a rank that is silent. Members of one collective wait for several ranks at
  // once and name only one, so where the chain ends among the living, any silent rank is the better
  // answer.
  Blame follow(Rank suspect, const std::vector<Rank>& ranks, const std::vector<Word>& before,
               const std::vector<Word>& after) const {
    const auto place = [&](Rank rank) {
      return ranks.size() == 1 ? 0 : static_cast<std::size_t>(rank.value);
    };
    const auto is_silent = [&](Rank rank) {
      const Word& word = after[place(rank)];
      return word.beat != 0 && word.beat == before[place(rank)].beat && !word.knows_verdict;
    };
    const auto silent = [&](Rank rank) {
      return Blame{rank, name_of(rank) + std::string(kSilent)};
    };
    std::vector<bool> seen(static_cast<std::size_t>(rendezvous.world_size));
    Blame last;
    for (Rank rank = suspect;;) {
      const Word& word = after[place(rank)];
      seen[static_cast<std::size_t>(rank.value)] = true;
      if (is_silent(rank)) return silent(rank);
      const Rank next{word.waits_for};
      if (word.beat == 0)
        last = {rank, name_of(rank) + " has left the job"};
      else if (word.waits_for < 0)
        last = {rank, name_of(rank) + " is alive but does not take part"};
      else
        last = {rank, name_of(rank) + " is alive but waits for " + name_of(next) + " in " +
                          word.operation};
      if (word.waits_for < 0 || ranks.size() == 1 || seen[static_cast<std::size_t>(next.value)] ||
          next == rendezvous.rank)
        break;
      rank = next;
    }
    for (const Rank rank : ranks)
      if (rank != rendezvous.rank && is_silent(rank)) return silent(rank);
    return last;
  }

  // Blocks until every other rank has left or, after a failure, every survivor knows the verdict; at
  // most kHostStays.
  void stay_for_others(const std::optional<Blame>& known) const {
    const auto needs_store = [&](Rank rank, const Word& word) {
      if (rank == rendezvous.rank || word.beat == 0) return false;
      return !known || (!word.knows_verdict && rank != known->rank);
    };
    const Deadline deadline = Deadline::after(Seconds{kHostStays.count() / 1000.0});
    const std::vector<Rank> ranks = witnesses(known ? known->rank : rendezvous.rank);
    while (!deadline.expired()) {
      const std::vector<Word> words = read_words(ranks);
      bool alone = true;
      for (std::size_t i = 0; i < ranks.size(); ++i)
        alone = alone && !needs_store(ranks[i], words[i]);
      if (alone) return;
      std::this_thread::sleep_for(milliseconds(20));
    }
  }
};

ProgressBoard::ProgressBoard(const comm::Rendezvous& rendezvous, Deadline deadline,
                             std::shared_ptr<const comm::PositionCell> position)
    : shared_(std::make_shared<Shared>()) {
  shared_->rendezvous = rendezvous;
  shared_->position = std::move(position);
  shared_->period = std::min(kBeat * (1 + rendezvous.world_size / 256), kSilence / 3);
  shared_->writer = Store::connect(rendezvous.host, rendezvous.port, deadline);
  shared_->reader = Store::connect(rendezvous.host, rendezvous.port, deadline);
  shared_->write_word(*shared_->writer);
  std::thread([shared = shared_] { shared->keep_writing(); }).detach();
}

ProgressBoard::~ProgressBoard() {
  std::unique_lock lock(shared_->mutex);
  if (shared_->hosts_store()) {
    const std::optional<Blame> known = shared_->verdict;
    lock.unlock();
    stay_for_others(known);
    lock.lock();
  }
  shared_->stop = true;
  shared_->wake.notify_all();
  // A writer that does not end is stuck in a dead store; it keeps what it uses alive.
  shared_->wake.wait_for(lock, milliseconds(100), [&] { return shared_->writer_ended; });
}

// On a thread of its own: nothing that the store does may keep a destructor.
void ProgressBoard::stay_for_others(const std::optional<Blame>& known) const {
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> stayed = done->get_future();
  std::thread([shared = shared_, done, known] {
    try {
      shared->stay_for_others(known);
    } catch (const std::exception&) {
    }
    done->set_value();
  }).detach();
  stayed.wait_for(kHostStays);
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

// On a thread that may be left behind in a store that does not answer.
std::vector<comm::Sighting> ProgressBoard::sightings() {
  {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->sightings.empty()) return shared_->sightings;
  }
  auto promise = std::make_shared<std::promise<std::vector<comm::Sighting>>>();
  auto glance = promise->get_future();
  std::thread([shared = shared_, promise] {
    try {
      promise->set_value(shared->look_around());
    } catch (const std::exception&) {
      promise->set_value({});
    }
  }).detach();
  if (glance.wait_for(kGlance) != std::future_status::ready) return {};
  return glance.get();
}

Blame ProgressBoard::find_culprit(Rank suspect) {
  const std::shared_ptr<Shared> shared = shared_;
  {
    std::lock_guard lock(shared->mutex);
    if (shared->verdict) return *shared->verdict;
  }
  const Waiting waiting(
      *this, suspect, "the search for a culprit");  // others may follow this rank's word meanwhile
  // On a thread that may be left behind in a store that does not answer.
  auto promise = std::make_shared<std::promise<Blame>>();
  std::future<Blame> investigation = promise->get_future();
  std::thread([shared, suspect, promise] {
    try {
      Blame found = shared->investigate(suspect);
      {
        std::lock_guard lock(shared->mutex);
        if (!shared->verdict) shared->verdict = found;
      }
      shared->write_word(
          *shared->reader);  // now, so that the store's host need not stay for this rank
      promise->set_value(std::move(found));
    } catch (const std::exception&) {
      promise->set_exception(std::current_exception());
    }
  }).detach();

  const std::string host = shared->rendezvous.agent_hosts_store ? "the launcher" : "rank 0";
  Blame blame{Rank{0}, "the store of " + host + " does not answer"};
  if (investigation.wait_for(kPatience) == std::future_status::ready) {
    try {
      blame = investigation.get();
    } catch (const std::exception&) {
      blame.verdict = "the store of " + host + " is gone";
    }
  }
  std::lock_guard lock(shared->mutex);
  if (!shared->verdict) shared->verdict = blame;
  return *shared->verdict;
}

}  // namespace lockstep::tensor

#include "tests/glass/race.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::glass {
namespace {

// What this thread has seen complete is before all that it launches.
thread_local Clock host;
thread_local std::string what_runs;

std::uint64_t at(const Clock& clock, int stream) {
  const auto i = static_cast<std::size_t>(stream);
  return i < clock.size() ? clock[i] : 0;
}

void join(Clock& into, const Clock& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

}  // namespace

Race& race() {
  static auto* const one = new Race;
  return *one;
}

int Race::new_stream(std::string name) {
  const std::lock_guard lock(mutex_);
  streams_.emplace_back();
  names_.push_back(std::move(name));
  return static_cast<int>(streams_.size()) - 1;
}

Race::Block* Race::block_at(std::uint64_t address) {
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return nullptr;
  --next;
  return address < next->second.end ? &next->second : nullptr;
}

void Race::touch(int stream, const std::string& op, const Access& access) {
  Block* const block = access.begin < access.end ? block_at(access.begin) : nullptr;
  if (block == nullptr) return;
  count_touches(access.begin, access.end);
  const Clock& now = streams_[static_cast<std::size_t>(stream)];
  std::erase_if(block->past, [&](const Past& past) {
    if (past.end <= access.begin || access.end <= past.begin) return false;
    const bool is_ordered = past.stream == stream || at(now, past.stream) >= past.tick;
    if (!is_ordered && (past.writes || access.writes))
      reports_.push_back(
          join_parts("race: ", op, " on ", name_of(stream), access.writes ? " writes" : " reads",
                     " what ", *past.op, " on ", name_of(past.stream),
                     past.writes ? " writes" : " reads", ", and no event orders them"));
    // What a later access covers and follows need not be remembered.
    return is_ordered && access.begin <= past.begin && past.end <= access.end &&
           (access.writes || (!past.writes && past.stream == stream));
  });
  block->past.push_back({access, at(now, stream), stream, &op});
}

void Race::say_what_runs(std::string name) { what_runs = std::move(name); }

const std::string& Race::name_here(const std::string& op) {
  return *ops_.insert(what_runs.empty() ? op : op + " in " + what_runs).first;
}

void Race::launch(int stream, const std::string& op, const std::vector<Access>& accesses) {
  const std::lock_guard lock(mutex_);
  Clock& now = streams_[static_cast<std::size_t>(stream)];
  join(now, host);
  if (now.size() <= static_cast<std::size_t>(stream)) now.resize(stream + 1);
  ++now[static_cast<std::size_t>(stream)];
  const std::string& name = name_here(op);
  for (const Access& access : accesses) touch(stream, name, access);
}

void Race::also(int stream, const std::string& op, const Access& access) {
  const std::lock_guard lock(mutex_);
  touch(stream, name_here(op), access);
}

std::shared_ptr<Clock> Race::record(int stream) {
  const std::lock_guard lock(mutex_);
  return std::make_shared<Clock>(streams_[static_cast<std::size_t>(stream)]);
}

void Race::stream_waits(int stream, const Clock& event) {
  const std::lock_guard lock(mutex_);
  join(streams_[static_cast<std::size_t>(stream)], event);
}

void Race::host_waits(const Clock& event) { join(host, event); }

void Race::host_waits_for_stream(int stream) { join(host, *record(stream)); }

bool Race::is_over_for_host(const Clock& event) {
  for (std::size_t i = 0; i < event.size(); ++i)
    if (at(host, static_cast<int>(i)) < event[i]) return false;
  return true;
}

void Race::take(std::uint64_t begin, std::uint64_t bytes, int stream) {
  const std::lock_guard lock(mutex_);
  Block& block = blocks_[begin] = {begin + bytes, stream, ++takings_};
  inherit(begin, block);
}

// What earlier owners of the memory did.
void Race::inherit(std::uint64_t begin, Block& block) {
  const auto add = [](const Block& from, std::uint64_t low, std::uint64_t high, Block& into) {
    for (Past past : from.past) {
      past.begin = std::max(past.begin, low);
      past.end = std::min(past.end, high);
      if (past.begin < past.end) into.past.push_back(past);
    }
  };
  auto next = given_.lower_bound(begin);
  if (next != given_.begin() && std::prev(next)->second.end > begin) --next;
  while (next != given_.end() && next->first < block.end) {
    const std::uint64_t low = next->first;
    const Block old = std::move(next->second);
    next = given_.erase(next);
    add(old, begin, block.end, block);
    if (low < begin) add(old, low, begin, given_[low] = {begin, old.stream});
    if (old.end > block.end)
      add(old, block.end, old.end, given_[block.end] = {old.end, old.stream});
  }
}

void Race::use_on(std::uint64_t begin, int stream) {
  const std::lock_guard lock(mutex_);
  if (Block* const block = block_at(begin)) block->used_on.insert(stream);
}

std::uint64_t Race::taking_of(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const Block* const block = block_at(address);
  return block == nullptr ? 0 : block->number;
}

// The next owner is launched on the block's stream, after what the host has seen.
void Race::give(std::uint64_t begin) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(begin);
  if (found == blocks_.end()) return;
  const Block& block = found->second;
  count_touches(begin, block.end);
  Clock now = streams_[static_cast<std::size_t>(block.stream)];
  join(now, host);
  const auto is_over = [&](const Past& past) {
    return past.stream == block.stream || at(now, past.stream) >= past.tick;
  };
  const auto is_told = [&](const Past& past) { return block.used_on.contains(past.stream); };
  for (const Past& past : block.past) {
    if (is_over(past) || is_told(past)) continue;
    reports_.push_back(join_parts("lifetime: memory of ", name_of(block.stream), " is returned",
                                  what_runs.empty() ? "" : " in ", what_runs, " while ", *past.op,
                                  " on ", name_of(past.stream), " may still ",
                                  past.writes ? "write" : "read", " it"));
    break;
  }
  // For streams that were told the allocator waits; what has been reported is not again.
  std::erase_if(found->second.past,
                [&](const Past& past) { return !is_over(past) || is_told(past); });
  given_[begin] = std::move(found->second);
  blocks_.erase(found);
}

std::uint64_t Race::tick_of(int stream) {
  const std::lock_guard lock(mutex_);
  return at(streams_[static_cast<std::size_t>(stream)], stream);
}

std::uint64_t Race::last_touch(const Access& bytes, int stream) {
  const std::lock_guard lock(mutex_);
  const Block* const block = bytes.begin < bytes.end ? block_at(bytes.begin) : nullptr;
  std::uint64_t last = 0;
  if (block != nullptr)
    for (const Past& past : block->past)
      if (past.stream == stream && past.begin < bytes.end && bytes.begin < past.end)
        last = std::max(last, past.tick);
  return last;
}

void Race::watch(const std::vector<Access>& bytes) {
  const std::lock_guard lock(mutex_);
  watched_ = bytes;
  touches_ = 0;
}

int Race::touches_of_watched() {
  const std::lock_guard lock(mutex_);
  return touches_;
}

void Race::count_touches(std::uint64_t begin, std::uint64_t end) {
  for (const Access& bytes : watched_)
    if (bytes.begin < end && begin < bytes.end) ++touches_;
}

void Race::host_touches(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const std::string who = what_runs.empty() ? "the host" : "the host, in " + what_runs + ",";
  const Block* const block = block_at(address);
  const Past* last = nullptr;
  if (block != nullptr)
    for (const Past& past : block->past)
      if (past.begin <= address && address < past.end) last = &past;
  reports_.push_back(last == nullptr
                         ? who + " touches device memory that nothing has used"
                         : join_parts(who, " touches what ", *last->op, " on ",
                                      name_of(last->stream), last->writes ? " writes" : " reads"));
}

void Race::report(const std::string& why) {
  const std::lock_guard lock(mutex_);
  reports_.push_back(why);
}

std::vector<std::string> Race::take_reports() {
  const std::lock_guard lock(mutex_);
  return std::exchange(reports_, {});
}

}  // namespace lockstep::glass

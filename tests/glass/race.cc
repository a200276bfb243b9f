#include "tests/glass/race.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::glass {
namespace {

// What this thread has seen complete is before all that it launches.
thread_local Clock host;

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

void Race::launch(int stream, const std::string& op, const std::vector<Access>& accesses) {
  const std::lock_guard lock(mutex_);
  Clock& now = streams_[static_cast<std::size_t>(stream)];
  join(now, host);
  if (now.size() <= static_cast<std::size_t>(stream)) now.resize(stream + 1);
  ++now[static_cast<std::size_t>(stream)];
  const std::string& name = *ops_.insert(op).first;
  for (const Access& access : accesses) touch(stream, name, access);
}

void Race::also(int stream, const std::string& op, const Access& access) {
  const std::lock_guard lock(mutex_);
  touch(stream, *ops_.insert(op).first, access);
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
  blocks_[begin] = {begin + bytes, stream, {}, {}};
}

void Race::use_on(std::uint64_t begin, int stream) {
  const std::lock_guard lock(mutex_);
  if (Block* const block = block_at(begin)) block->used_on.insert(stream);
}

// The next owner is launched on the block's stream, after what the host has seen.
void Race::give(std::uint64_t begin) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(begin);
  if (found == blocks_.end()) return;
  const Block& block = found->second;
  Clock now = streams_[static_cast<std::size_t>(block.stream)];
  join(now, host);
  for (const Past& past : block.past) {
    if (past.stream == block.stream || at(now, past.stream) >= past.tick) continue;
    if (block.used_on.contains(past.stream)) continue;
    reports_.push_back(join_parts("lifetime: memory of ", name_of(block.stream),
                                  " is returned while ", *past.op, " on ", name_of(past.stream),
                                  " may still ", past.writes ? "write" : "read", " it"));
    break;
  }
  blocks_.erase(found);
}

std::vector<std::string> Race::take_reports() {
  const std::lock_guard lock(mutex_);
  return std::exchange(reports_, {});
}

}  // namespace lockstep::glass

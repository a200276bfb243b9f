// A thread that does what may wait for a disk, so that nobody else has to.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace lockstep::data {

// Calls `work` with each range that was asked for, in order. The thread starts with the first; ranges that
// wait when this ends are dropped, and so is the oldest when too many wait: they are wishes, not duties.
class ReadAhead {
 public:
  using Work = std::function<void(std::int64_t first, std::int64_t count)>;
  explicit ReadAhead(Work work) : work_(std::move(work)) {}
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Any thread; returns at once.
  void ask(std::int64_t first, std::int64_t count);

 private:
  void loop(const std::stop_token& stop);

  Work work_;
  std::mutex mutex_;
  std::condition_variable_any asked_;
  std::deque<std::pair<std::int64_t, std::int64_t>> ranges_;
  std::jthread thread_;
};

}  // namespace lockstep::data

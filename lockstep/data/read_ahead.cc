#include "lockstep/data/read_ahead.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kMostWaiting = 64;

}  // namespace

ReadAhead::~ReadAhead() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

void ReadAhead::ask(std::int64_t first, std::int64_t count) {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable())
    thread_ = std::jthread([this](const std::stop_token& stop) { loop(stop); });
  ranges_.emplace_back(first, count);
  if (ranges_.size() > kMostWaiting) ranges_.pop_front();
  asked_.notify_one();
}

void ReadAhead::loop(const std::stop_token& stop) {
  for (;;) {
    std::unique_lock lock(mutex_);
    if (!asked_.wait(lock, stop, [&] { return !ranges_.empty(); })) return;
    const auto [first, count] = ranges_.front();
    ranges_.pop_front();
    lock.unlock();
    if (stop.stop_requested()) return;
    work_(first, count);
  }
}

}  // namespace lockstep::data

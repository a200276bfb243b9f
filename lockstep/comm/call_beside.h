// Calls into other libraries that nothing ends: a store whose host is stopped never answers, and
// Gloo waits for absent members five times its deadline.
#pragma once

#include <chrono>
#include <future>
#include <thread>
#include <utility>

namespace lockstep::comm {

// What `call` returns, or throws. It runs on a thread of its own, and `waiting` is called here
// every 20 ms meanwhile. When that throws, the thread is left behind: `call` must own all that it
// uses.
template <class Call, class Waiting>
auto call_beside(Call call, const Waiting& waiting) {
  std::packaged_task<decltype(call())()> task(std::move(call));
  auto answer = task.get_future();
  std::thread(std::move(task)).detach();
  while (answer.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) waiting();
  return answer.get();
}

}  // namespace lockstep::comm

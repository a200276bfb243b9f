// How the ranks of a job come together at the store, before any of them does work: everyone has
// come, nobody twice, and all of them mean the same job. Rank 0 looks, and its verdict reaches
// every rank.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/base/json.h"
#include "lockstep/comm/backend.h"
#include "lockstep/comm/c10d/store.h"

namespace lockstep::comm {

// One rank's part. Throws WorldError: LS0505 when ranks are missing at the deadline, all of them
// named; LS0501 when a rank came twice or means another job, with what differs; LS0506 when asked
// to stop. One thread. Rendezvous and options must outlive it.
class Meeting {
 public:
  // `check_others` is called while it waits, and throws when a rank that had come was lost.
  Meeting(std::shared_ptr<Store> store, const Rendezvous& rendezvous, Deadline deadline,
          const JoinOptions& options, std::function<void()> check_others);

  // First of all. `address`: a numeric one, at which the others reach this rank.
  void arrive(const std::string& address);

  // What rank 0 leaves under `key`; waits for it.
  void leave(const std::string& key, const std::string& text);
  std::string await(const std::string& key);

  // Until all have come this far, so that each is watched by then, and rank 0 has found that they
  // mean the same job. The address of some rank, when not all of them are reached by loopback; else
  // nothing.
  std::string conclude();

 private:
  struct NextNotice {     // when somebody who waits is told for whom
    Seconds after = {2};  // doubled each time
    Deadline due = Deadline::after(after);
  };

  // A call of the store, which may be stopped; or one that only time and `check` end.
  template <class Call>
  auto ask(Call call) const;
  template <class Call, class Check>
  auto ask_until(Deadline until, Check check, Call call) const;
  bool has(const std::string& key) const;
  std::string get(const std::string& key) const;
  void check() const;
  std::string await_verdict();
  // Whoever gives up has read why, or need not; rank 0, whose store ends with it, stays until then.
  void give_up() const noexcept;
  void await_others(std::optional<Rank> lost) const noexcept;
  std::map<int, Json> await_all();
  void compare(const std::map<int, Json>& arrived) const;
  // A moment, and a notice of `text` when one is due.
  void pause(NextNotice& notice, const std::string& text) const;
  std::string where() const;

  const std::shared_ptr<Store> store_;
  const Rendezvous& rendezvous_;
  const Deadline deadline_;
  const JoinOptions& options_;
  const std::function<void()> check_others_;
};

}  // namespace lockstep::comm

// A world of processes that meet at a c10d store, watch each other and fail together. A backend
// adds how a group of them is connected.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/c10d/meeting.h"
#include "lockstep/comm/c10d/progress.h"
#include "lockstep/comm/c10d/store.h"
#include "lockstep/comm/lifeline.h"

namespace lockstep::comm {

class ProcessWorld : public World {
 public:
  // As Backend::join says. Rank 0 hosts the store unless the launcher does.
  ProcessWorld(const Rendezvous& rendezvous, Deadline deadline, const JoinOptions& options);

  Rank rank() const override { return rendezvous_.rank; }
  int size() const override { return rendezvous_.world_size; }
  std::vector<LastSeen> last_seen() override { return board_->last_seen(); }
  const std::shared_ptr<Store>& store() const { return store_; }
  std::unique_ptr<Communicator> connect(std::string name, std::string axis,
                                        std::vector<Rank> members, Deadline deadline) override;

 protected:
  // Throws; what is no WorldError becomes one that says from where the group could not be
  // connected.
  virtual std::unique_ptr<Communicator> connect_group(Membership place, Deadline deadline) = 0;

  // While a group is connected: throws when a rank is lost, when asked to stop, when time is up.
  void check_connecting(Deadline deadline) const;

  const std::shared_ptr<ProgressBoard>& board() const { return board_; }
  const std::string& own_address() const { return own_address_; }  // numeric, as others reach it

 private:
  void join(Deadline deadline, const JoinOptions& options);
  void start_board(Deadline deadline);
  void open_lifeline(Meeting& meeting, Deadline deadline);
  void watch_others(const JoinOptions& options);

  const Rendezvous rendezvous_;
  const std::atomic<bool>* const stop_;
  std::string own_address_;
  std::shared_ptr<Store> store_;
  std::shared_ptr<ProgressBoard> board_;
  std::unique_ptr<Lifeline> lifeline_;
};

}  // namespace lockstep::comm

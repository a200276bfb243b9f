#include "lockstep/train/checkpoint_agreement.h"

#include <utility>
#include <vector>

#include "lockstep/train/session.h"

namespace lockstep::train {

std::unique_ptr<comm::Communicator> connect_all(comm::World& world, const std::string& name,
                                                Deadline deadline) {
  std::vector<Rank> everyone;
  for (int rank = 0; rank < world.size(); ++rank) everyone.push_back({rank});
  return world.connect(name, kCheckpointAxis, std::move(everyone), deadline);
}

}  // namespace lockstep::train

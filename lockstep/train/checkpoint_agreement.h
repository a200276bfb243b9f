// How ranks come to one verdict about a checkpoint. Internal.
#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/texts.h"

namespace lockstep::train {

std::unique_ptr<comm::Communicator> connect_all(comm::World& world, const std::string& name,
                                                Deadline deadline);

using comm::decoded;
using comm::encoded;

}  // namespace lockstep::train

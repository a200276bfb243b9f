// How ranks come to one verdict about a checkpoint. Internal.
#pragma once

#include <memory>
#include <string>

#include "lockstep/base/result.h"
#include "lockstep/comm/communicator.h"

namespace lockstep::train {

std::unique_ptr<comm::Communicator> connect_all(comm::World& world, const std::string& name,
                                                Deadline deadline);

// A Result as a text, to be sent.
std::string encoded(const Result<std::string>& result);
Result<std::string> decoded(const std::string& text);

}  // namespace lockstep::train

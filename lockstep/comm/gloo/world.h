// The `gloo` row: ranks are processes, bytes travel over TCP.
#pragma once

#include <memory>

#include "lockstep/comm/c10d/meeting.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/rendezvous.h"

namespace lockstep::comm {

struct GlooOptions {
  MeetingOptions meeting = {};  // `tell` also hears, on another thread, of ranks that fall silent
  // How long a rank may be without a heartbeat, whether anybody waits for it or not.
  Seconds silence = {60};
};

// Joins the world: meets all other ranks (meeting.h). Rank 0 hosts the store unless the launcher does.
// Throws WorldError. The death of a rank, and what another rank has found to be a failure, ends all
// communicators of the world within moments. After a failure the world gives up its connections
// without closing them, because Gloo's destructor may block on a peer that is stopped; the process
// can then end at once.
std::unique_ptr<comm::World> join_gloo(const comm::Rendezvous& rendezvous, Deadline deadline,
                                       const GlooOptions& options = {});

}  // namespace lockstep::comm

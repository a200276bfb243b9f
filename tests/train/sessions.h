// Jobs of tests whose ranks are threads of the test.
#pragma once

#include <functional>

#include "lockstep/comm/local/local.h"
#include "lockstep/train/session.h"
#include "lockstep/verify/trial.h"

namespace lockstep::train {

// Calls `body` on every rank's thread.
inline void on_every_rank(const Job& job, const data::TokenSource& source,
                          const std::function<void(comm::World& world, Session& session)>& body) {
  comm::run_local(job.mesh.world(), [&](comm::World& world) {
    Session session(job, world, "", source, Seconds{300});
    body(world, session);
  });
}

// One step with all that predictions are about, without the state that a trial copies.
inline verify::RankStep measured_step(comm::World& world, Session& session, std::int64_t step) {
  verify::RankStep measured;
  world.ledger().clear();
  measured.report =
      session.step(step, [&](int) { measured.live.push_back(session.memory().live()); });
  measured.ledger = world.ledger().entries();
  return measured;
}

}  // namespace lockstep::train

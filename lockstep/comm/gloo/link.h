// Point-to-point transfers between the members of one group over Gloo. All collectives of the gloo
// row are composed of these (gloo_communicator.h), because Gloo moves bytes pair by pair faster
// than its own collectives do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/comm/c10d/store.h"

namespace c10d {
class Backend;
}

namespace lockstep::comm {

// A transfer in progress. Must have ended before it is destroyed, because Gloo keeps a bare pointer to
// it. Any thread may call it; how it ended is remembered.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Throws std::exception when the peer is gone or the deadline passes; the whole link is then dead.
  // Returns false when it was aborted.
  virtual bool wait(Deadline deadline) = 0;
  virtual void abort() = 0;    // ends a wait in progress and all later ones
  virtual void give_up() = 0;  // ends the transfer itself, and with it the whole link
};

// Transfers match by (sender, receiver, tag) in the order of issue. Any thread may call it.
class GlooLink {
 public:
  // Collective over the members: `index` of `size`, meeting under `name` in the store. Listens at the
  // numeric `own_address`, unless GLOO_SOCKET_IFNAME names an interface.
  static std::unique_ptr<GlooLink> connect(Store& store, const std::string& name, int index,
                                           int size, const std::string& own_address,
                                           Deadline deadline);
  ~GlooLink();

  std::unique_ptr<Transfer> send(const void* data, std::int64_t bytes, int to, int tag);
  std::unique_ptr<Transfer> recv(void* data, std::int64_t bytes, int from, int tag);

  // The process group underneath, for measuring its own collectives beside ours.
  c10d::Backend& native() const;

 private:
  struct Impl;
  explicit GlooLink(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::comm

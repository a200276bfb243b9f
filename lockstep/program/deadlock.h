// Whether a program can run to its end, whatever the speed of each rank.
//
// A list issues its ops in order. Compute, Norm and the tied reduction hold it until they are done,
// a Wait until the op it names is done; other asynchronous ops do not hold it, except transfers on
// a blocking transport. A transfer is done once both its ends are issued and, where the transport
// keeps order, everything before it in the queues of both ends is done: no transport is assumed to
// buffer. A collective over pipeline ranks is done once all its members have issued it. Nothing
// branches and every transfer is matched by its number, so the order of events does not matter, and
// one topological sort decides.
//
// A program that ends has one order of all collectives in which every rank issues them, as NCCL
// asks of a rank with several communicators: those over pipeline ranks hold the lists, and all
// others are among ranks that run the same list.
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/base/result.h"
#include "lockstep/program/program.h"

namespace lockstep::program {

// From the least to the most forgiving.
enum class Transport : std::uint8_t {
  kBlocking,          // a call returns when the transfer is done
  kOneQueue,          // one queue in order per rank
  kQueuePerPeer,      // one queue in order per rank and peer, both ways mixed: NCCL with one
  kFifoPerDirection,  // one queue in order per sender and receiver: NCCL with a communicator each
  kTagged,            // matched by number, in any order
};
inline constexpr Transport kTransports[] = {Transport::kBlocking, Transport::kOneQueue,
                                            Transport::kQueuePerPeer, Transport::kFifoPerDirection,
                                            Transport::kTagged};

std::string_view to_text(Transport transport);  // "queue_per_peer"

// The error, kDeadlock, tells who waits for whom as a chain that bites its own tail, or that ends
// at a call nobody makes. REQUIRES: one list per pipeline rank, transfers in range.
Result<void> check_deadlock(const Program& program, Transport transport);

}  // namespace lockstep::program

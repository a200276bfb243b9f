// When to post receives, given which computations make and use what is sent.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/ids.h"

namespace lockstep::program {

// One transfer; the places are indices of compute ops.
struct Hop {
  std::int32_t transfer = -1;
  std::int32_t producer = -1;  // in the sender's list
  std::int32_t consumer = -1;  // in the receiver's list
  std::int32_t post = -1;      // in the receiver's list: PostRecv stands before this op
};

// Everything that one coordinate sends to another, outputs and gradients alike. At most one transfer
// is in flight: a Send is issued after its producer, once the Send before it is done.
struct Channel {
  Coord from;
  Coord to;
  std::vector<Hop> hops;  // in the sender's order
};

// Per coordinate, how long each of its compute ops takes, in any unit; none is below 1.
using NominalTimes = std::vector<std::vector<std::int32_t>>;

// Sets every Hop::post, in the sender's order: where the receiver stands when the Send before leaves
// (the first: when it leaves itself), if all took their nominal times and transfers none; at the
// latest one compute op before the consumer. So in those times no sender waits, and a transfer may
// last as long as the sender computes between two Sends. Other times may make senders wait, never in
// a circle: the rehearsal is a run that ends, and where one ends all do (deadlock.h). The price is
// the buffer, which the receiver holds from there on.
// REQUIRES: the compute ops can run in the given orders if sending takes no time and never waits.
void place_posts(std::vector<Channel>& channels, const NominalTimes& times);

}  // namespace lockstep::program

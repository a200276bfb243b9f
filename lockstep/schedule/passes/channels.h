// When to post receives, given which computations make and use what is sent.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/ids.h"

namespace lockstep::schedule {

// One transfer; the places are indices of compute ops.
struct Hop {
  std::int32_t transfer = -1;
  std::int32_t producer = -1;  // in the sender's list
  std::int32_t consumer = -1;  // in the receiver's list
  std::int32_t post = -1;      // in the receiver's list: PostRecv stands before this op
};

// Transfers of one direction from one coordinate to another. At most one is in flight: a Send is
// issued after its producer, once the Send before it has met its PostRecv.
struct Channel {
  Coord from;
  Coord to;
  std::vector<Hop> hops;  // in the sender's order
};

// Sets every Hop::post: one compute op before the consumer, in the sender's order, and earlier only
// where coordinates would otherwise wait for each other in a circle. `lengths[c]` is the number of
// compute ops of coordinate c.
// REQUIRES: the compute ops can run in the given orders if sending takes no time and never waits.
void place_posts(std::vector<Channel>& channels, std::span<const std::int32_t> lengths);

}  // namespace lockstep::schedule

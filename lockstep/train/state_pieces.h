// The state of a rank as pieces that are hashed one by one: each what the rank holds of one
// parameter in one role. A piece that several ranks hold has the same key on all of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/runtime/tensor_workspace.h"
#include "lockstep/train/job.h"

namespace lockstep::train {

enum class Holding : std::uint8_t {
  kWeight,     // what passes compute with
  kOwnWeight,  // the shard of it that this rank updates (ZeRO 1 and 2)
  kMaster,     // of a bf16 weight
  kFirstMoment,
  kSecondMoment,
  kGradient,    // reduced; there from Norm to Update
  kRouterBias,  // selection biases, all of them
};
std::string_view to_text(Holding holding);  // "first moment"

struct StatePiece {
  int segment = 0;
  Holding holding = Holding::kWeight;
  int param = 0;            // index into Unit::params
  model::FlatRange range;   // elements of the segment's buffer
  std::int64_t at = 0;      // of the first in tensor_of()
  std::int64_t part = 0;    // among those that hold other parts of the same range
  std::int64_t copies = 1;  // ranks that hold the same
  bool is_first = true;     // this is the first of them
  std::uint64_t key() const;
};

// When a piece means something: what no other rank's ops change from Update to Norm, what a step
// computes with, and what is whole between two steps.
enum class Moment : std::uint8_t { kAtRest, kAtNorm, kBetweenSteps };
std::vector<StatePiece> state_pieces(const Job& job, const runtime::TensorWorkspace& workspace,
                                     const runtime::Place& place, Rank rank, Moment moment);

// Where the elements of such pieces are. REQUIRES: memory of the host; of gradients a step between
// Norm and Update.
at::Tensor tensor_of(const runtime::TensorWorkspace& workspace, int segment, Holding holding);

// XXH3 of each piece's bytes, on the thread's intra-op threads.
std::vector<std::uint64_t> digests_of(const runtime::TensorWorkspace& workspace,
                                      std::span<const StatePiece> pieces);

// "first moment of blocks.3.attn.q.weight".
std::string name_of(const Job& job, const StatePiece& piece);

}  // namespace lockstep::train

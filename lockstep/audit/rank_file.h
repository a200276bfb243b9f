// What one rank wrote: rank-N.json and rank-N.safetensors of a dump.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/audit/dump.h"
#include "lockstep/audit/pieces.h"
#include "lockstep/base/result.h"
#include "lockstep/files/safetensors.h"

namespace lockstep::audit {

inline constexpr std::int64_t kIgnored = -100;  // a label that does not count

// Pieces refer to the mapped file, which it keeps. Movable.
struct RankFile {
  int rank = 0;
  int data_rank = 0, data_ranks = 1;
  std::unique_ptr<files::Safetensors> tensors;
  std::map<std::string, std::vector<std::pair<std::string, Piece>>> pieces;  // by kind; with names
  std::map<std::pair<int, int>, std::vector<Sample>> batches;  // by data rank and microbatch
  Said said;
};

Result<RankFile> read_rank(const std::string& folder, int rank);

}  // namespace lockstep::audit

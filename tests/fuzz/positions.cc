// Any positions that ranks say they are at: a stall is explained, and only ranks of the mesh are
// named. The first byte chooses the program; of each rank follow 9 bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "lockstep/exec/stall.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/program/lower.h"

namespace {

using namespace lockstep;

struct Job {
  program::Program program;
  mesh::Mesh mesh;
};

Job job(const char* schedule, pipeline::Shape shape, int shards, int zero, int tp) {
  program::StepShape step;
  step.zero = zero;
  step.tied = true;
  step.period = zero < 2 ? program::Period::kStep : program::Period::kMicrobatch;
  const int units = shape.stages() + 2;
  step.stage_begin = program::split_units(units, shape.stages());
  step.recompute.assign(static_cast<std::size_t>(units), false);
  step.tensor_parallel = tp > 1;
  if (tp > 1) step.partial.assign(static_cast<std::size_t>(units), true);
  const auto timetable = pipeline::find(schedule)->build(shape);
  return {*program::lower(*timetable, step),
          *mesh::Mesh::create({.tp = tp, .pp = shape.coords, .dp = shards, .dp_shard = shards})};
}

void check_rank(const Job& about, Rank rank) {
  if (rank.value < 0 || rank.value >= about.mesh.world()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<Job> jobs = {job("1f1b", {3, 1, 4}, 1, 0, 1),
                                        job("zbv", {2, 2, 3}, 2, 3, 1),
                                        job("1f1b", {2, 1, 2}, 1, 1, 2)};
  if (size == 0) return 0;
  const Job& about = jobs[*data++ % jobs.size()];
  --size;
  std::vector<comm::LastSeen> seen(static_cast<std::size_t>(about.mesh.world()));
  for (std::size_t rank = 0; rank < seen.size() && size >= 9; ++rank, data += 9, size -= 9) {
    comm::Position at;
    std::memcpy(&at.step, data, 4);
    std::memcpy(&at.op, data + 4, 4);
    at.waits = (data[8] & 1) != 0;
    at.evaluates = (data[8] & 8) != 0;
    at.part = data[8] >> 4;
    seen[rank].is_silent = (data[8] & 2) != 0;
    if ((data[8] & 4) == 0) seen[rank].position = at;
  }
  const auto part_text = [](const program::Op&, int part) {
    return exec::PartMeeting{"a collective",
                             part % 2 == 0 ? mesh::Axis::kTensor : mesh::Axis::kContext};
  };
  const exec::StallReport report = exec::explain_stall(about.program, about.mesh, seen, part_text);
  for (const Rank rank : report.culprits) check_rank(about, rank);
  for (const exec::RankStatus& one : report.ranks) {
    for (const Rank rank : one.waits_for) check_rank(about, rank);
    if (report.chain(one.rank).empty() || report.describe_from(one.rank).empty()) std::abort();
  }
  return 0;
}

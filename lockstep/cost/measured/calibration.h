// How long things take on one machine, measured by `lockstep calibrate`: passes of units,
// optimizer, norm, and the three parts of every collective, each as a time or as a straight line
// over its size. With it a program is priced in seconds (calibrated_prices.h). Plain data; any
// thread may read it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/base/units.h"
#include "lockstep/comm/ledger.h"
#include "lockstep/cost/measured/fingerprint.h"
#include "lockstep/model/arch.h"
#include "lockstep/program/program.h"
#include "lockstep/sim/pass_sim.h"

namespace lockstep::cost {

// alpha + beta x.
struct Line {
  double alpha = 0;     // seconds
  double beta = 0;      // seconds per unit of x
  double residual = 0;  // largest relative distance of a point that it was fitted to
  std::int64_t points = 0;

  Seconds at(double x) const { return {alpha + beta * x}; }
  bool operator==(const Line&) const = default;
};

// Least squares of relative distances, with alpha and beta of 0 or more; points whose time is not
// above 0 count as 0. Nothing fitted to no points.
Line fit_line(std::span<const std::pair<double, double>> points);

struct PassTime {
  Seconds time = {};
  double spread = 0;  // of its samples: half the distance of their quartiles, over the median
  std::int64_t samples = 0;
  bool operator==(const PassTime&) const = default;
};

// Over bytes of the full buffer, of a transfer its tensor: what issuing takes of the list, what the
// operation takes on its lane, and what its Wait takes of the list afterwards.
struct CollectiveTime {
  comm::OpKind kind = comm::OpKind::kAllReduce;
  std::int64_t members = 2;
  Line issue = {}, lane = {}, finish = {};

  Seconds total(double bytes) const { return issue.at(bytes) + lane.at(bytes) + finish.at(bytes); }
  bool operator==(const CollectiveTime&) const = default;
};

struct Calibration {
  // Where and when, for people; refused are other `print`s and members only.
  std::string date = {}, lockstep = {}, torch = {}, cpu = {};
  std::string ranks_are = {};  // "threads", "processes"
  std::int64_t ranks = 1;      // that were busy
  Fingerprint print = {};

  std::map<std::string, PassTime> passes = {};  // by pass_name; nothing ran beside collectives
  // By pass_name: of its parts, as sim/pass_sim.h wants them.
  std::map<std::string, std::vector<sim::PartCost>> parts = {};
  PassTime load = {};    // of a microbatch
  Line count = {};       // over the microbatches of a step
  Line norm = {};        // over gradient elements of a rank, besides its messages
  Line update = {};      // over elements that the rank updates
  Line accumulate = {};  // of a reduced piece, over its bytes
  std::vector<CollectiveTime> collectives = {};
  // While something communicates on a rank it computes so much slower, and the other way round.
  double slowdown = 1;

  const CollectiveTime* find(comm::OpKind kind, std::int64_t members) const;
  bool operator==(const Calibration&) const = default;
};

struct CalibrationFile {
  std::string name;  // of the file
  Calibration calibration;
};

// What a compute op is filed under: "block.F", "block.B.first" for the first of a period, whose
// gradients overwrite, "block.C" for F of a unit that is recomputed. Empty for other ops.
std::string pass_name(const program::StepShape& step, const model::Unit& unit,
                      const program::Op& op);

// "lockstep.calibration/2". Every number reads back to the same bits.
std::string write_calibration(const Calibration& calibration);
Result<Calibration> read_calibration(std::string_view text, const std::string& name);

}  // namespace lockstep::cost

// Which layouts there are to choose from: every way to divide the devices over the axes, with every
// sharding, pipeline schedule, microbatch size, recompute and order of axes that makes a difference.
// The size of the lattice depends on divisors, not on the number of devices.
//
// A point of it is a cost::PriceRequest; layout_of.h turns one into a plan::Layout. Plain values; any
// thread may read them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/cost/price.h"

namespace lockstep::search {

// What is asked: train this model with such batches on that many devices of the cluster.
struct Question {
  cost::ModelShape shape = {};
  const cluster::Cluster* cluster = nullptr;  // not owned
  const cluster::DeviceRates* rates = nullptr;
  std::int64_t devices = 0;  // that are used, all of them
  std::int64_t seq = 0, global_batch = 0;
  cost::Precision precision = cost::Precision::kBf16;
  std::vector<cost::Pipe> pipes = {};     // pipelines to choose from; empty: all
  double tp = 0, cp = 0, pp = 0, ep = 0;  // degrees that are given; 0: free
  int most_zero = 3;
};

// The axes that decide what a layer computes and exchanges, and how those of a sequence meet.
struct Core {
  double tp = 1, cp = 1, ep = 1, etp = 1;
  cost::ContextWay context = cost::ContextWay::kRing;
};

// ZeRO stage, and how many of dp x cp devices share states.
struct Sharding {
  int zero = 1;
  double group = 1;
};

struct Timetable {
  cost::Pipe pipe = cost::Pipe::k1f1b;
  double chunks = 1;
};

// Refers to its question; keep that alive.
//   tp          divides devices, heads, key-value heads and MLP columns, and seq; stays in the innermost tier,
//               on a torus in the two innermost
//   cp          2 x cp x tp divides seq, 512 tokens or more on each rank
//   context     where cp > 1: ring, gather, and Ulysses where tp x cp divides the heads of queries, which it deals to
//               ranks whole (arXiv 2309.14509, section 3.1; keys are copied where ranks outnumber their heads)
//   ep, etp     ep divides the experts; etp is 1 or tp
//   pp          divides what is left; a stage has a layer or more. dp is the rest
//   sharding    ZeRO 0, 1, 3, and 2 with one microbatch (with more it keeps whole gradients, like 1, or reduces
//               them every time, like 3); for 1 and 3 also groups that stay inside a tier
//   timetable   those whose bubble is known in closed form at this number of microbatches
//   microbatch  divisors of the sequences that a data-parallel rank gets, at most 64
//   keep        everything; all but cheap tensors; and where one of these does not fit, a block's input alone in as
//               few blocks of each pipeline rank as it takes, and that in the others (a point here, many layouts)
//   placement   pipeline inside data or outside it, where there are both
class Lattice {
 public:
  explicit Lattice(const Question& question);

  const Question& question() const { return question_; }
  std::span<const Core> cores() const { return cores_; }
  std::span<const cost::ContextWay> contexts(double tp, double cp) const;
  std::span<const cost::Keep> keeps() const;
  std::vector<double> pipelines(const Core& core) const;  // ascending
  double data(const Core& core, double pp) const;         // dp
  std::vector<Sharding> shardings(const Core& core, double pp) const;
  std::vector<Timetable> timetables(double pp) const;
  std::vector<double> microbatches(double dp) const;  // sequences in one, ascending
  std::span<const double> batch_divisors() const { return batch_divisors_; }
  std::span<const cost::Placement> placements(const Core& core, double pp) const;

  // Whether the choices go together: m is the number of microbatches.
  static bool fits(const Sharding& sharding, double m) { return sharding.zero != 2 || m == 1; }
  static bool fits(const Timetable& timetable, double pp, double m);

  // A request with everything but the choices filled in; refers to the question.
  static cost::PriceRequest blank(const Question& question);
  // The same with a core chosen.
  cost::PriceRequest of(const Core& core) const;

  // Number of points.
  std::int64_t size() const;

 private:
  void add_cores(double tp, double cp);
  void add_cores(const Core& dense);
  bool cuts_tensors(double tp) const;
  double largest_divisor(double dp, double limit) const;

  const Question& question_;
  std::vector<double> degrees_;  // divisors of the devices
  std::vector<Core> cores_;
  std::vector<double> batch_divisors_;
};

// All of them, ascending. REQUIRES: n >= 1.
std::vector<double> divisors(std::int64_t n);

}  // namespace lockstep::search

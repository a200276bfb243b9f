// Which layouts there are to choose from: every way to divide the devices over the axes, with every
// sharding, pipeline schedule, microbatch size, recompute and order of axes that makes a
// difference. The size of the lattice depends on divisors, not on the number of devices.
//
// A point of it is a cost::PriceRequest; layout_of.h turns one into a spec::Layout. Plain values;
// any thread may read them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/cost/analytic/price.h"
#include "lockstep/planner/framework.h"

namespace lockstep::planner {

// Share of a device's memory that a plan leaves free. Of 569 published runs that ran out of memory
// 19 are predicted to fit, 15 with this much less; of 531 that ran, 14 and 35 are not. Llama 3's
// own layout fits with it (77.5 of 80 GiB), with 0.04 it does not. Source: the runs of
// docs/accuracy.md.
inline constexpr double kHeadroom = 0.03;

// The axes that decide what a layer computes and exchanges, and how those of a sequence meet.
struct Core {
  int tp = 1, cp = 1, ep = 1, etp = 1;
  model::CpMethod context = model::CpMethod::kRing;
};

// ZeRO stage, and how many of dp x cp devices share states.
struct Sharding {
  int zero = 1;
  int group = 1;
};

struct Timetable {
  const pipeline::CatalogRow* schedule = &pipeline::row("1f1b");
  int chunks = 1;
};

// Settings that a layout has whatever else is chosen; those that are absent, empty or 0 are free.
struct Given {
  std::optional<Core> core = {};  // with Question::pp all degrees; its `context` is not read
  std::optional<model::CpMethod> context = {};
  std::optional<Sharding> sharding = {};
  std::optional<model::Drop> drop = {};
  int recomputed = 0;  // with `drop`, as in cost::PriceRequest
  std::optional<cost::Placement> placement = {};
  int chunks = 0;
  std::int64_t microbatch = 0;
  std::vector<int> layers = {};  // of each stage
  std::vector<int> blocks = {};  // of these, with drop.block, how many are recomputed
  bool sp = true;
};

// What is asked: train this model with such batches on that many devices of the cluster.
struct Question {
  const cost::ModelShape* shape = nullptr;  // none of the three is owned
  const cluster::Cluster* cluster = nullptr;
  const cluster::DeviceRates* rates = nullptr;
  std::int64_t devices = 0;  // that are used, all of them; at most cluster::kMaxDevices
  std::int64_t seq = 0, global_batch = 0;
  cost::Precision precision = cost::Precision::kBf16;
  std::vector<const pipeline::CatalogRow*> schedules = {};  // to choose from; empty: all
  int tp = 0, cp = 0, pp = 0, ep = 0;                       // degrees that are given; 0: free
  bool runnable = false;  // only what the runtime has: without sp, no etp but tp
  int most_zero = 3;
  double headroom = kHeadroom;           // share of a device's memory that no layout is given
  Given given = {};                      // only layouts that agree with it
  const Framework* framework = nullptr;  // that is to run them, priced so; null: any
};

// Shards states, and prices them as the framework keeps them.
void set_sharding(const Question& question, const Sharding& sharding, cost::PriceRequest& request);

// Refers to its question; keep that alive.
//   tp          divides devices, heads, MLP columns and seq, and the key-value heads or is a
//               multiple of them; stays in the innermost tier, on a torus in the two innermost
//   cp          2 x cp x tp divides seq, 512 tokens or more on each rank
//   context     where cp > 1: ring, gather, and Ulysses where model::deals_heads (keys are copied
//               where ranks outnumber their heads)
//   ep, etp     ep divides the experts; etp is 1 or tp
//   pp          divides what is left; a stage has a layer or more. dp is the rest
//   sharding    ZeRO 0, 1, 3, and 2 with one microbatch (with more it keeps whole gradients, like
//               1, or reduces them every time, like 3); for 1 and 3 also groups that stay inside a
//               tier
//   timetable   those whose bubble is known in closed form at this number of microbatches
//   microbatch  divisors of the sequences that a data-parallel rank gets, at most 64
//   drop        nothing; selective; and where one of these does not fit, all but a block's
//               input in as few blocks of each pipeline rank as it takes, and that in the others
//               (a point here, many layouts)
//   placement   pipeline inside data or outside it, where there are both
// What is given takes the place of its row, whether the row has it or not. Where the core is, also
// uneven stages with chunks are in the lattice, and ZeRO-2 that reduces after every microbatch.
// Where a framework is named, what it does not run is left out.
class Lattice {
 public:
  explicit Lattice(const Question& question);

  const Question& question() const { return question_; }
  std::span<const Core> cores() const { return cores_; }
  std::vector<model::CpMethod> contexts(int tp, int cp) const;
  std::span<const model::Drop> drops() const { return drops_; }
  std::vector<int> pipelines(const Core& core) const;  // ascending
  int data(const Core& core, int pp) const;            // dp
  std::vector<Sharding> shardings(const Core& core, int pp) const;
  std::vector<Timetable> timetables(int pp) const;
  std::vector<std::int64_t> microbatches(int dp) const;  // sequences in one, ascending
  std::span<const std::int64_t> batch_divisors() const { return batch_divisors_; }
  std::span<const cost::Placement> placements(const Core& core, int pp) const;

  // Whether the choices go together: m is the number of microbatches.
  bool fits(const Sharding& sharding, std::int64_t m) const;
  bool fits(const Timetable& timetable, int pp, std::int64_t m) const;

  // A request with everything but the choices filled in; refers to the question.
  static cost::PriceRequest blank(const Question& question);
  // The same with a core chosen.
  cost::PriceRequest of(const Core& core) const;

  // Number of points.
  std::int64_t size() const;

 private:
  void add_cores(int tp, int cp);
  void add_cores(const Core& dense);
  bool cuts_tensors(int tp) const;
  int largest_divisor(int dp, std::int64_t limit) const;

  const Question& question_;
  int devices_ = 1;
  std::vector<int> degrees_;  // divisors of the devices
  std::vector<Core> cores_;
  std::vector<model::Drop> drops_;
  std::vector<std::int64_t> batch_divisors_;
};

// The rows of pipeline::catalog() that are planned, in its order.
std::vector<const pipeline::CatalogRow*> planned_schedules();

}  // namespace lockstep::planner

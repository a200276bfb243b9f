// What a planner pays per candidate. Stage by stage: p = 16, v = 8, m = 128. Whole program:
// llama3-405b with TP 8, PP 16 and 8 chunks, 128 microbatches, from the layout to a timeline, on
// 16,384 and on 1,048,576 ranks. Milliseconds are medians of processor time, one thread.
//   bench_simulate [repeats = 9]
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string>
#include <vector>

#include "bench/median.h"
#include "lockstep/base/check.h"
#include "lockstep/cost/program_bytes.h"
#include "lockstep/cost/traffic.h"
#include "lockstep/model/arch.h"
#include "lockstep/model/catalog.h"
#include "lockstep/parts/op_pass.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/program/deadlock.h"
#include "lockstep/program/memory_walk.h"
#include "lockstep/program/validate.h"
#include "lockstep/sim/pass_sim.h"
#include "lockstep/sim/simulator.h"
#include "lockstep/sim/stage_sim.h"
#include "lockstep/spec/legal.h"
#include "lockstep/spec/step.h"

namespace lockstep {
namespace {

using program::OpKind;

double processor_ms() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

double peak_mib() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

template <class Work>
double median_ms(int repeats, const Work& work) {
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const double start = processor_ms();
    work();
    times.push_back(processor_ms() - start);
  }
  return median(times);
}

void time_stages(const char* name, int repeats) {
  const pipeline::Shape shape = {16, 8, 128};
  const auto build = pipeline::find(name)->build;
  const pipeline::Schedule made = *build(shape);
  const sim::StageCosts costs = sim::even_costs(shape, {60}, {72}, {48}, {3});
  std::printf("stages of %-15s build %6.2f ms, simulate %6.2f ms\n", name,
              median_ms(repeats, [&] { LS_CHECK(build(shape).ok()); }), median_ms(repeats, [&] {
                LS_CHECK(sim::simulate_stages(made, costs).makespan > Seconds{});
              }));
}

Seconds cost_of(Coord, const program::Op& op) {
  switch (op.kind) {
    case OpKind::kForward:
    case OpKind::kRecompute:
      return {10e-3};
    case OpKind::kBackward:
      return {20e-3};
    case OpKind::kSend:
      return {1e-3};
    case OpKind::kGather:
    case OpKind::kReduce:
      return {5e-3};
    default:
      return {};
  }
}

// One layout of llama3-405b on tp 8 x pp 16 x dp ranks; every phase is timed for itself.
class Candidate {
 public:
  Candidate(int zero, std::int64_t dp) {
    layout_.degrees = {.tp = 8, .pp = 16, .dp = dp};
    layout_.zero = zero;
    layout_.reduce = spec::default_reduce(zero);
    layout_.schedule = "interleaved";
    layout_.chunks = 8;
    layout_.recompute = {model::kWholeBlock};
    batch_ = {.seq = 8192, .global_batch = 128 * dp, .microbatch = 1};
    sizes_ = {.unit = {.batch = 1,
                       .seq = 8192,
                       .dtype = DType::kBF16,
                       .tp = 8,
                       .sequence_parallel = true},
              .shards = dp};
  }

  void run_once() {
    double last = processor_ms();
    const auto note = [&](std::vector<double>& phase) {
      phase.push_back(processor_ms() - last);
      last = processor_ms();
    };
    spec::legal(model_.config, layout_, batch_, DType::kBF16);
    program_ = *spec::program_for(model_, layout_, batch_);
    note(lower_);
    LS_CHECK(program::validate(program_).empty());
    note(validate_);
    for (const auto level : {program::Transport::kFifoPerDirection, program::Transport::kTagged})
      LS_CHECK(check_deadlock(program_, level).ok());
    note(deadlock_);
    LS_CHECK(sim::simulate(program_, cost_of).ok());
    note(simulate_);
    all_.push_back(lower_.back() + validate_.back() + deadlock_.back() + simulate_.back());
    LS_CHECK(sim::simulate(program_, cost_of, {.slowdown = {1.2, 1.1}}).ok());
    note(slowed_);
    simulate_parts();
    note(parts_);
    walk_and_count();
    note(walk_);
  }

  double all() const { return median(all_); }

  // As above, each pass as long as its parts take: lists, their times, the step, and where every
  // part of every op comes to lie in it.
  void simulate_parts() {
    std::map<std::string, sim::PassTimes> passes;
    std::map<int, parts::UnitPasses> units;
    const auto pass_of = [&](const program::Op& op) -> const sim::PassTimes* {
      if (op.unit < 0) return nullptr;
      const auto name = parts::pass_of(program_.step, model_.unit(op.unit), op);
      if (!name) return nullptr;
      const int kind = model_.order[static_cast<std::size_t>(op.unit)];
      const std::string key = join_parts(kind, " ", static_cast<int>(*name));
      const auto found = passes.find(key);
      if (found != passes.end()) return &found->second;
      const parts::UnitPasses& unit =
          units.try_emplace(kind, model_.config, model_.unit(op.unit), sizes_.unit).first->second;
      return &passes.emplace(key, times_of(unit, *name)).first->second;
    };
    const auto made = sim::simulate(program_, [&](Coord coord, const program::Op& op) {
      const sim::PassTimes* pass = pass_of(op);
      return pass == nullptr ? cost_of(coord, op) : pass->length;
    });
    std::vector<program::TimedPart> all;
    for (std::size_t c = 0; c < made->coords.size(); ++c)
      for (const program::TimedOp& timed : made->coords[c])
        if (const auto* pass = pass_of(program_.lists[c][static_cast<std::size_t>(timed.op)]))
          for (program::TimedPart part : pass->parts) {
            part.start += timed.start, part.end += timed.start;
            all.push_back(part);
          }
    num_parts_ = all.size();
  }

  void print() const {
    std::printf(
        "zero %d on %9s ranks, %zu ops per rank: lower %.1f + validate %.1f + deadlock %.1f + "
        "simulate %.1f = %.1f ms (simulate with slowdown %.1f; at the grain of parts %.1f, %zu of "
        "them; memory and "
        "traffic %.1f)\n",
        layout_.zero, with_commas(8 * 16 * layout_.degrees.dp).c_str(), program_.lists[1].size(),
        median(lower_), median(validate_), median(deadlock_), median(simulate_), all(),
        median(slowed_), median(parts_), num_parts_, median(walk_));
  }

 private:
  // 400 TFLOP/s and 300 GB/s.
  static sim::PassTimes times_of(const parts::UnitPasses& unit, parts::UnitPass name) {
    const parts::Pass& pass = unit.at(name);
    std::vector<sim::PartCost> costs;
    parts::Sizes sizes = unit.sizes();
    for_each_part(
        pass, sizes,
        [&](std::size_t i, std::int64_t) {
          const parts::Part& part = pass.parts[i];
          if (part.kind == parts::Kind::kWait) return;
          const bool moves = row_of(part.kind).collective;
          const double bytes =
              moves ? static_cast<double>(collective_bytes(part, unit.values(), sizes)) : 0;
          costs.push_back({{flops_of(part, unit.values(), sizes) / 400e12}, {bytes / 300e9}});
        },
        [] {});
    return simulate_pass(pass, unit.sizes(), costs);
  }

  void walk_and_count() const {
    const program::ProgramBytes bytes = cost::program_bytes(model_, program_.step, sizes_);
    const mesh::Mesh mesh = *mesh::Mesh::create(layout_.degrees, layout_.order);
    for (int coord = 0; coord < program_.step.shape.coords; ++coord) {
      LS_CHECK(walk(program_, {coord}, bytes).peak > 0);
      const Rank rank{static_cast<std::int32_t>(mesh.world() / program_.step.shape.coords * coord)};
      LS_CHECK(!cost::step_traffic(program_, model_, sizes_, mesh, rank).empty());
    }
  }

  model::Model model_ = *model::describe(model::find("llama3-405b")->config);
  spec::Layout layout_;
  spec::Batch batch_;
  cost::StepSizes sizes_;
  program::Program program_;
  std::vector<double> lower_, validate_, deadlock_, simulate_, slowed_, parts_, walk_, all_;
  std::size_t num_parts_ = 0;
};

void time_programs(int zero, int repeats) {
  Candidate few(zero, 128), many(zero, 8192);
  for (int i = 0; i < repeats; ++i) {
    few.run_once();
    many.run_once();
  }
  few.print();
  many.print();
  std::printf("zero %d: %.2f times as long on a million ranks; peak %.0f MiB so far\n", zero,
              many.all() / few.all(), peak_mib());
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 9;
  for (const char* name : {"interleaved", "interleaved-zb", "looped-bfs"})
    lockstep::time_stages(name, repeats);
  for (const int zero : {1, 2, 3}) lockstep::time_programs(zero, repeats);
  return 0;
}

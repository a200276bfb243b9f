// Lockstep's gloo row beside c10d's own collectives on the same Gloo: the same processes, bytes and
// moment, call by call in turn. Prints medians and their ratio.
//   bench_comm_vs_c10d [ranks = 2] [MiB = 64] [repetitions = 21]

#include <ATen/ops/full.h>
#include <sys/resource.h>
#if __has_include(<torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>)
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#else
#include <torch/csrc/distributed/c10d/gloo/ProcessGroupGloo.hpp>
#endif

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/backends/backends.h"
#include "lockstep/comm/c10d/store.h"
#include "lockstep/launch/spawn.h"

namespace lockstep {
namespace {

struct Cost {
  double wall, cpu;  // seconds; cpu of all threads of this process
};

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

Cost cost_of(const std::function<void()>& work) {
  const double cpu = cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  work();
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
          cpu_seconds() - cpu};
}

double median(const std::vector<Cost>& costs, double Cost::* part) {
  std::vector<double> values;
  for (const Cost& cost : costs) values.push_back(1e3 * (cost.*part));
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Contest {
  const char* name;
  std::function<void()> ours, theirs;
};

int run_rank(std::int64_t bytes, int repetitions) {
  const auto rendezvous = *comm::rendezvous_from(comm::process_environment);
  const Deadline deadline = Deadline::after(Seconds{120});
  auto world = comm::join(DeviceKind::kCpu, rendezvous, deadline);
  std::vector<Rank> all;
  for (int r = 0; r < world->size(); ++r) all.push_back(Rank{r});
  auto comm = world->connect("bench", "bench", all, deadline);
  auto store = comm::Store::connect(rendezvous.host, rendezvous.port, deadline);
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  options->threads = 1;
  options->timeout = comm::in_milliseconds(deadline);
  c10d::ProcessGroupGloo own(
      c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(&store->native()),
      rendezvous.rank.value, world->size(), options);

  const std::int64_t full_count = bytes / 4, piece_count = full_count / world->size();
  at::Tensor full = at::full({full_count}, 1.0), piece = at::full({piece_count}, 1.0);
  const Buffer full_buffer{full.data_ptr(), full_count, DType::kF32, {}};
  const Buffer piece_buffer{piece.data_ptr(), piece_count, DType::kF32, {}};
  std::vector<at::Tensor> list{full};
  const std::vector<Contest> contests = {
      {"reduce_scatter", [&] { comm->reduce_scatter(full_buffer, piece_buffer, deadline).wait(); },
       [&] { own._reduce_scatter_base(piece, full)->wait(); }},
      {"all_gather", [&] { comm->all_gather(piece_buffer, full_buffer, deadline).wait(); },
       [&] { own._allgather_base(full, piece)->wait(); }},
      {"all_reduce", [&] { comm->all_reduce(full_buffer, deadline).wait(); },
       [&] { own.allreduce(list)->wait(); }},
  };
  if (rendezvous.rank == Rank{0})
    std::printf("%-16s %10s %10s %7s %14s %14s\n", "", "ours ms", "c10d ms", "ratio", "ours cpu ms",
                "c10d cpu ms");
  for (const Contest& contest : contests) {
    std::vector<Cost> ours, theirs;
    for (int i = 0; i < repetitions + 2; ++i) {
      full.fill_(1.0);
      piece.fill_(1.0);
      comm->barrier(deadline).wait();
      const Cost mine = cost_of(contest.ours);
      comm->barrier(deadline).wait();
      const Cost c10ds = cost_of(contest.theirs);
      if (i < 2) continue;  // warm-up
      ours.push_back(mine);
      theirs.push_back(c10ds);
    }
    if (rendezvous.rank == Rank{0})
      std::printf("%-16s %10.2f %10.2f %7.3f %14.2f %14.2f\n", contest.name,
                  median(ours, &Cost::wall), median(theirs, &Cost::wall),
                  median(ours, &Cost::wall) / median(theirs, &Cost::wall), median(ours, &Cost::cpu),
                  median(theirs, &Cost::cpu));
  }
  comm->barrier(deadline).wait();
  return 0;
}

int run(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const std::int64_t mebibytes = argc > 2 ? std::atoll(argv[2]) : 64;
  const int repetitions = argc > 3 ? std::atoi(argv[3]) : 21;
  if (std::getenv("RANK") != nullptr) return run_rank(mebibytes << 20, repetitions);
  auto job = launch::RankProcesses::start(
      {"/proc/self/exe",
       {std::to_string(ranks), std::to_string(mebibytes), std::to_string(repetitions)},
       ranks,
       {},
       ""});
  int failed = job.ok() ? 0 : 1;
  for (int r = 0; job.ok() && r < ranks; ++r)
    failed += job->wait(Rank{r}, Deadline::never())->ok() ? 0 : 1;
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::run(argc, argv); }

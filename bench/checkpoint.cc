// Saving and loading a model with its Adam state from two ranks: how long a step waits, against a
// bare copy of the same bytes, and how many bytes a second get to the disk (digests and syncs
// included) and back into tensors (digests included; from the disk as far as saves go past the page
// cache, and then from the page cache).
//   bench_checkpoint FOLDER [rounds = 5] [model = gpt2] [layout = "dp2 zero3"]

#include <ATen/ops/empty.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "bench/median.h"
#include "lockstep/base/clock.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/comm/local/local.h"
#include "lockstep/data/mock_tokens.h"
#include "lockstep/model/catalog.h"
#include "lockstep/spec/spec.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/strict_kernels.h"
#include "lockstep/train/checkpoint.h"
#include "lockstep/train/checkpoint_state.h"

namespace lockstep::train {
namespace {

constexpr Seconds kDeadline = {600};

struct Round {
  double stall = 0, copy = 0, save = 0, load = 0, load_cold = 0;
  double save_cpu = 0, load_cpu = 0;  // of all ranks: on a busy machine it says more
};

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double seconds(const RealClock& clock) { return clock.now().since_start.value; }

// The same bytes from the same places into memory that was touched before.
double bare_copy(const Job& job, Session& session, std::vector<char>& target) {
  const auto slices = own_slices(job, session);
  const RealClock clock;
  char* to = target.data();
  for (const OwnSlice& own : slices) {
    const at::Tensor state = elements_of(own, session);
    std::memcpy(to, state.const_data_ptr(), static_cast<std::size_t>(own.typed.bytes()));
    to += own.typed.bytes();
  }
  return seconds(clock);
}

void bench_rank(const Job& job, comm::World& world, const std::string& folder, int rounds,
                std::vector<Round>& found, std::int64_t& bytes) {
  const data::MockTokens tokens(1, job.model.config.vocab, false);
  Session session(job, world, "", tokens, kDeadline);
  std::int64_t own = 0;
  for (const OwnSlice& slice : own_slices(job, session)) own += slice.typed.bytes();
  std::vector<char> target(static_cast<std::size_t>(own));
  Saver saver(job, session, world, "", {.folder = folder, .keep = 0, .data = "bench"}, kDeadline);
  const auto all = world.connect("bench", "bench", {{0}, {1}}, Deadline::after(kDeadline));
  const auto barrier = [&] { all->barrier(Deadline::after(kDeadline)).wait(); };
  for (int round = 0; round < rounds; ++round) {
    Round now;
    barrier();
    now.copy = bare_copy(job, session, target);
    barrier();
    const double cpu = cpu_seconds();
    const RealClock saving;
    saver.save({round + 1, 0, 0});
    now.stall = saver.paused().value;
    saver.finish();
    barrier();
    now.save = seconds(saving);
    now.save_cpu = cpu_seconds() - cpu;
    for (double* time : {&now.load_cold, &now.load}) {
      barrier();
      const double before = cpu_seconds();
      const RealClock loading;
      const auto loaded =
          load(job, session, world, std::to_string(round) + (time == &now.load ? "b" : "a"), folder,
               "bench", kDeadline);
      if (!loaded.ok()) std::printf("%s\n", loaded.error().message.c_str());
      barrier();
      *time = seconds(loading);
      now.load_cpu = cpu_seconds() - before;
    }
    if (world.rank().value != 0) continue;
    found.push_back(now);
    std::filesystem::remove_all(folder + "/" + checkpoint::folder_name(round + 1));
  }
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  bytes += own;
}

int run(const std::string& folder, int rounds, const std::string& model,
        const std::string& layout) {
  tensor::request_strict_kernels();
  tensor::install_counting_allocator();
  spec::Spec spec;
  spec.model = model::find(model).value().config;
  spec.layout = spec::parse_layout(layout).value();
  spec.batch = {128, 2, 1};
  spec.train = {1, {.peak = 1e-3}, 0.1, 1.0, 1, DType::kF32};
  const Job job = make_job(spec).value();
  std::vector<Round> found;
  std::int64_t bytes = 0;
  comm::run_local(job.mesh.world(), [&](comm::World& world) {
    bench_rank(job, world, folder, rounds, found, bytes);
  });
  const auto of = [&](double Round::* member) {
    std::vector<double> values;
    for (const Round& round : found) values.push_back(round.*member);
    return median(values);
  };
  const double gb = static_cast<double>(bytes) / 1e9;
  std::printf("%s, %s, %.3f GB of state, medians of %d rounds\n", model.c_str(), layout.c_str(), gb,
              rounds);
  std::printf("  copy   %7.1f ms  %.2f GB/s\n", 1e3 * of(&Round::copy), gb / of(&Round::copy));
  std::printf("  stall  %7.1f ms  %.2f x the copy\n", 1e3 * of(&Round::stall),
              of(&Round::stall) / of(&Round::copy));
  std::printf("  save   %7.1f ms  %.2f GB/s, until it is durable\n", 1e3 * of(&Round::save),
              gb / of(&Round::save));
  std::printf("  load   %7.1f ms  %.2f GB/s of the checkpoint, from the page cache\n",
              1e3 * of(&Round::load), gb / of(&Round::load));
  std::printf("  cold   %7.1f ms  %.2f GB/s, the first load after a save\n",
              1e3 * of(&Round::load_cold), gb / of(&Round::load_cold));
  std::printf("  per second of one core: save %.2f GB, load %.2f GB\n", gb / of(&Round::save_cpu),
              gb / of(&Round::load_cpu));
  for (const char* name : {"/.lock", "/latest", ""}) std::filesystem::remove(folder + name);
  return 0;
}

}  // namespace
}  // namespace lockstep::train

int main(int argc, char** argv) {
  if (argc < 2) {
    std::printf("bench_checkpoint FOLDER [rounds = 5] [model = gpt2] [layout = \"dp2 zero3\"]\n");
    return 2;
  }
  return lockstep::train::run(argv[1], argc > 2 ? std::atoi(argv[2]) : 5,
                              argc > 3 ? argv[3] : "gpt2", argc > 4 ? argv[4] : "dp2 zero3");
}

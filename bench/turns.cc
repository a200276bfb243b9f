// One contestant of a duel with other training systems: warms up, says `ready`, then takes one step
// for each line `go` it reads and answers with its seconds; anything else ends it, and it writes a
// record. bench/duel.py starts it beside the others.
//   bench_turns layers hidden heads vocab seq microbatch dtype threads warmup steps seconds
//               family(gpt2|llama) microbatches layout record.json
// `steps` above 0 takes that many without being asked; `seconds` is not read; `layout` is a short
// name with commas between its words. With WORLD_SIZE above 1 it is one rank of that many, over
// Gloo.

#include <ATen/Parallel.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "bench/median.h"
#include "lockstep/base/check.h"
#include "lockstep/comm/backends/backends.h"
#include "lockstep/comm/local/local.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/data/mock_tokens.h"
#include "lockstep/model/catalog.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/strict_kernels.h"
#include "lockstep/train/session.h"

namespace lockstep {
namespace {

struct Request {
  spec::Spec spec;
  int threads = 1, warmup = 0, steps = 0;
  std::string record;
};

spec::Layout layout_of(std::string words) {
  std::ranges::replace(words, ',', ' ');
  return spec::parse_layout(words).value();
}

// The models of the duel: gpt2 ties its head; llama has half as many key/value heads.
model::ModelConfig model_of(char** word, bool is_llama, bool is_pipeline) {
  model::ModelConfig model = model::find(is_llama ? "llama2-7b" : "gpt2")->config;
  model.layers = std::atoll(word[1]);
  model.hidden = std::atoll(word[2]);
  model.heads = std::atoll(word[3]);
  model.vocab = std::atoll(word[4]);
  model.max_positions = std::atoll(word[5]);
  model.head_dim = model.hidden / model.heads;
  model.kv_heads = is_llama ? model.heads / 2 : model.heads;
  model.ffn = is_llama ? (8 * model.hidden / 3 + 63) / 64 * 64 : 4 * model.hidden;
  model.tied = !is_llama && !is_pipeline;
  return model;
}

Request request_of(char** word) {
  Request request;
  const std::string dtype = word[7];
  const bool is_llama = std::string(word[12]) == "llama";
  spec::Spec& spec = request.spec;
  spec.layout = layout_of(word[14]);
  spec.model = model_of(word, is_llama, spec.layout.degrees.pp > 1);
  const std::int64_t microbatch = std::atoll(word[6]), count = std::atoll(word[13]);
  spec.batch = {std::atoll(word[5]), microbatch * count * spec.layout.degrees.dp, microbatch};
  spec.train = {1, {.peak = 3e-4}, 0.01, 1.0, 1, dtype == "f32" ? DType::kF32 : DType::kBF16};
  request.threads = std::atoi(word[8]);
  request.warmup = std::atoi(word[9]);
  request.steps = std::atoi(word[10]);
  request.record = word[15];
  return request;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The most memory this process ever had.
double peak_rss_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::atof(line.c_str() + 6) / 1024;
  return 0;
}

struct Usage {
  double user = 0, system = 0, faults = 0;
};
Usage usage() {
  rusage used = {};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return {seconds(used.ru_utime), seconds(used.ru_stime), static_cast<double>(used.ru_minflt)};
}

void write_record(const Request& request, const std::vector<double>& times, const Usage& before,
                  double loss) {
  if (times.empty()) return;
  const Usage after = usage();
  const auto n = static_cast<double>(times.size());
  const spec::Batch& batch = request.spec.batch;
  std::FILE* file = std::fopen(request.record.c_str(), "w");
  LS_CHECK(file != nullptr, "cannot write ", request.record);
  std::fprintf(file,
               "{\"mode\":\"lockstep\",\"steps\":%zu,\"step_s\":%.9f,\"step_min_s\":%.9f,"
               "\"step_max_s\":%.9f,\"tokens_per_step\":%lld,\"peak_rss_mib\":%.1f,"
               "\"sys_s_per_step\":%.6f,\"user_s_per_step\":%.6f,\"minor_faults_per_step\":%.1f,"
               "\"losses\":[%.6f]}\n",
               times.size(), median(times), *std::ranges::min_element(times),
               *std::ranges::max_element(times),
               static_cast<long long>(batch.global_batch * batch.seq), peak_rss_mib(),
               (after.system - before.system) / n, (after.user - before.user) / n,
               (after.faults - before.faults) / n, loss);
  std::fclose(file);
}

// Whether all ranks take another step: rank 0 reads it and tells the others.
bool goes_on(const Request& request, std::size_t taken, comm::World& world,
             comm::Communicator& all) {
  std::int64_t go = 0;
  if (request.steps > 0) return taken < static_cast<std::size_t>(request.steps);
  if (world.rank().value == 0) {
    std::string line;
    go = std::getline(std::cin, line) && line == "go" ? 1 : 0;
  }
  if (world.size() > 1)
    all.broadcast({&go, 1, DType::kI64, {}}, 0, Deadline::after(Seconds{600})).wait();
  return go == 1;
}

void take_part(const Request& request, comm::World& world) {
  spec::Spec spec = request.spec;
  spec.train.threads = request.threads;
  const auto job = train::make_job(spec);
  LS_CHECK(job.ok(), job.error().message);
  const data::MockTokens source(1, request.spec.model.vocab, false);
  train::Session session(*job, world, "", source, Seconds{600});
  std::vector<Rank> ranks;
  for (int rank = 0; rank < world.size(); ++rank) ranks.push_back(Rank{rank});
  const auto all = world.connect("turns", "turns", ranks, Deadline::after(Seconds{60}));
  std::int64_t step = 0;
  double loss = 0;
  while (step < request.warmup) loss = session.step(step++).loss;
  if (world.rank().value == 0) std::cout << "ready" << std::endl;
  std::vector<double> times;
  const Usage before = usage();
  while (goes_on(request, times.size(), world, *all)) {
    const double start = now();
    loss = session.step(step++).loss;
    times.push_back(now() - start);
    if (world.rank().value == 0 && request.steps == 0) {
      std::printf("%.9f\n", times.back());
      std::fflush(stdout);
    }
  }
  write_record(request, times, before, loss);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  if (argc != 16) {
    std::fputs("bench_turns: see the head of its source for the fifteen arguments\n", stderr);
    return 2;
  }
  tensor::request_strict_kernels();
  tensor::install_counting_allocator();
  const Request request = request_of(argv);
  const auto place = comm::rendezvous_from(comm::process_environment);
  if (place.ok() && place->world_size > 1) {
    const auto world = comm::join(DeviceKind::kCpu, *place, Deadline::after(Seconds{60}));
    take_part(request, *world);
  } else {
    comm::run_local(1, [&](comm::World& world) { take_part(request, world); });
  }
  return 0;
}

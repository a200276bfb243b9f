// What an order of samples costs to make and to read from: documents of a few hundred tokens, one
// epoch, blends, and reading with cold pages, with and without being expected.
//   bench_data_order [millions of documents = 4] [folder = /tmp]
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/data/corpus_tokens.h"
#include "lockstep/data/sample_order.h"
#include "lockstep/data/token_file.h"
#include "lockstep/data/token_writer.h"

namespace lockstep {
namespace {

constexpr std::int64_t kSeq = 2048;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Of this thread: others on the machine do not count.
double cpu_seconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::int32_t length_of(std::int64_t document) {
  return static_cast<std::int32_t>(50 + static_cast<std::uint32_t>(document * 2654435761) % 700);
}

void time_order(std::int64_t documents) {
  std::vector<std::int32_t> lengths;
  for (std::int64_t i = 0; i < documents; ++i) lengths.push_back(length_of(i));
  const data::PieceLengths view(std::as_bytes(std::span(lengths)));
  const double start = cpu_seconds();
  const auto order = data::SampleOrder::build(view, {0, documents}, {kSeq, std::nullopt, 1}, "it");
  const double built = cpu_seconds();
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < 100'000; ++i)
    sum += order->place(order->sample(i * 7919 % order->samples())).offset;
  std::printf("%lld documents, %lld samples: order in %.0f ms, a place in %.2f us (%lld)\n",
              static_cast<long long>(documents), static_cast<long long>(order->samples()),
              1e3 * (built - start), 1e6 * (cpu_seconds() - built) / 1e5,
              static_cast<long long>(sum));
}

void time_blend(std::size_t files, std::int64_t samples) {
  const std::vector<double> weights(files, 1.0 / static_cast<double>(files));
  const std::vector<std::int64_t> limits(files, samples);
  const double start = cpu_seconds();
  const data::Blend blend(weights, limits, samples);
  std::printf("blend of %zu files, %lld samples: %.0f ms\n", files, static_cast<long long>(samples),
              1e3 * (cpu_seconds() - start));
}

void write_corpus(const std::string& prefix, std::int64_t documents) {
  data::TokenWriter writer(files::real_disk(), prefix, data::TokenType::kU16);
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < documents; ++i) {
    tokens.assign(static_cast<std::size_t>(length_of(i)), i % 50000);
    LS_CHECK(writer.add(tokens).ok());
  }
  writer.finish();
}

// The file's pages leave the cache; they are clean, the writer synced them.
void cool(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

// Microseconds a sample takes to read in steps of 64, each followed by 20 ms of other work.
double time_reading(const std::string& prefix, bool is_expected) {
  constexpr std::int64_t kBatch = 64, kSteps = 20;
  double spent = 0;
  {
    const auto tokens = data::CorpusTokens::open({.files = {prefix}, .shares = {1, 0, 0}},
                                                 data::Split::kTrain, {.seq = kSeq});
    std::vector<std::int64_t> text(kSeq), labels(kSeq);
    cool(prefix + ".bin");
    for (std::int64_t step = 0; step < kSteps; ++step) {
      if (is_expected) (*tokens)->expect((step + 1) * kBatch, kBatch);
      const double start = seconds();
      for (std::int64_t i = 0; i < kBatch; ++i) (*tokens)->read(step * kBatch + i, text, labels);
      if (step > 0) spent += seconds() - start;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  return 1e6 * spent / static_cast<double>(kBatch * (kSteps - 1));
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  const std::int64_t documents = (argc > 1 ? std::atoll(argv[1]) : 4) * 1'000'000;
  time_order(1'000'000);
  time_order(documents);
  time_blend(10, 1'000'000);
  const std::string prefix = std::string(argc > 2 ? argv[2] : "/tmp") + "/lockstep.bench.data";
  write_corpus(prefix, 1'000'000);
  time_reading(prefix, false);
  for (int round = 0; round < 3; ++round) {
    const double cold = time_reading(prefix, false), expected = time_reading(prefix, true);
    std::printf("a sample of %lld tokens, cold: %.0f us; expected a step before: %.0f us\n",
                static_cast<long long>(kSeq), cold, expected);
  }
  for (const char* ending : {".bin", ".idx"}) ::unlink((prefix + ending).c_str());
}

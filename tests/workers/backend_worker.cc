// One rank of the tests of backends; tests/comm/backends/backends_test.cc starts as many as it
// needs.
//   backend_worker <backend> contract <largest bytes>
//   backend_worker <backend> victim <deadline seconds> <victim rank> <signal>
// The victim signals itself in the middle of a collective.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "lockstep/comm/backends/backends.h"
#include "tests/contract/contract.h"

namespace lockstep {
namespace {

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

int run_contract(comm::World& world, std::int64_t largest) {
  const comm::contract::Report report = comm::contract::run(world, {largest});
  for (const std::string& failure : report.failures) std::fprintf(stderr, "%s\n", failure.c_str());
  if (world.rank() == Rank{0}) std::printf("cases %lld\n", static_cast<long long>(report.cases));
  return report.failures.empty() ? 0 : 1;
}

// Keeps the group busy until it breaks; then says what it was told, and when.
int run_until_failure(comm::World& world, double deadline, Rank victim, int signal_number) {
  std::vector<Rank> all;
  for (int r = 0; r < world.size(); ++r) all.push_back(Rank{r});
  auto comm = world.connect("world", "world", all, Deadline::after(Seconds{30}));
  std::vector<float> data(4 << 20, 1.0f);
  const Buffer buffer{data.data(), static_cast<std::int64_t>(data.size()), DType::kF32, {}};
  double last_issue = 0;
  try {
    for (int step = 0;; ++step) {
      if (step == 3 && world.rank() == victim) {
        std::thread([=] {
          std::this_thread::sleep_for(std::chrono::milliseconds(2));  // into the collective
          std::printf("signal %.6f\n", wall_clock());
          std::fflush(stdout);
          ::kill(::getpid(), signal_number);
        }).detach();
      }
      last_issue = wall_clock();
      comm->all_reduce(buffer, Deadline::after(Seconds{deadline})).wait();
    }
  } catch (const comm::CommError& error) {
    std::printf("error %.6f %.6f %d %s %s\n", wall_clock(), last_issue,
                error.culprit() ? error.culprit()->value : -1,
                std::string(to_text(error.op())).c_str(), error.error().message.c_str());
  }
  bool poisoned = false;
  try {
    comm->barrier(Deadline::after(Seconds{5})).wait();
  } catch (const comm::CommError& error) {
    poisoned = error.error().code == Code::kPoisoned;
  }
  comm.reset();
  return poisoned ? 0 : 1;
}

int run(int argc, char** argv) {
  const auto rendezvous = comm::rendezvous_from(comm::process_environment);
  if (!rendezvous.ok()) {
    std::fprintf(stderr, "%s\n", rendezvous.error().message.c_str());
    return 3;
  }
  const auto rows = comm::backends();
  const auto backend = std::ranges::find(rows, argc > 1 ? argv[1] : "", &comm::Backend::name);
  if (backend == rows.end() || argc < 4) return 2;
  auto world = backend->join(*rendezvous, Deadline::after(Seconds{30}), {});
  if (argc == 4 && std::strcmp(argv[2], "contract") == 0)
    return run_contract(*world, std::atoll(argv[3]));
  if (argc == 6 && std::strcmp(argv[2], "victim") == 0) {
    const int result =
        run_until_failure(*world, std::atof(argv[3]), Rank{std::atoi(argv[4])}, std::atoi(argv[5]));
    world.reset();
    std::printf("leaving %.6f\n", wall_clock());
    return result;
  }
  return 2;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::run(argc, argv); }

// One rank of a trial in f32; tests/train starts as many as the layout needs.
//   train_worker <layout> <steps>   rank 0 prints the bits of every step

#include <cstdio>
#include <cstdlib>

#include "lockstep/data/mock_tokens.h"
#include "lockstep/tensor/gloo_world.h"
#include "lockstep/train/trial.h"
#include "tests/train/tiny.h"

namespace lockstep::train {
namespace {

int run(const std::string& layout, int steps) {
  const Job job = job_of(tiny_spec(true, DType::kF32), layout);
  const auto rendezvous = comm::rendezvous_from(comm::process_environment);
  if (!rendezvous.ok()) {
    std::fprintf(stderr, "%s\n", to_text(rendezvous.error()).c_str());
    return 3;
  }
  const auto world = tensor::join_gloo(*rendezvous, Deadline::after(Seconds{60}));
  std::vector<StepOrder> orders;
  for (int step = 0; step < steps; ++step) orders.push_back({step, nullptr});
  const data::MockTokens tokens(1, job.model.config.vocab, true);
  const TrialResult trial = run_trial_in(*world, "", job, tokens, orders, Seconds{60});
  if (!trial.disagreement.empty()) std::fprintf(stderr, "%s\n", trial.disagreement.c_str());
  if (world->rank() == Rank{0}) std::printf("%s", bits_of(trial.images).c_str());
  return trial.disagreement.empty() ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::train

int main(int argc, char** argv) {
  return argc == 3 ? lockstep::train::run(argv[1], std::atoi(argv[2])) : 2;
}

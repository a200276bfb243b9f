// A small model trained with the library alone, on two threads as ranks: evaluated, saved, resumed.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "lockstep/comm/local/local.h"
#include "lockstep/data/mock_tokens.h"
#include "lockstep/model/user_model.h"
#include "lockstep/train/run_metrics.h"
#include "lockstep/train/trainer.h"

int main(int, char** argv) {
  using namespace lockstep;
  const std::string folder = std::string(argv[0]) + ".run";  // of checkpoints and metrics
  std::filesystem::remove_all(folder);
  config::Report mistakes;
  spec::Spec spec;
  spec.model = model::find_model("llama-tiny", mistakes).value();
  spec.layout = spec::parse_layout("dp2 zero1").value();
  spec.batch = {.seq = 16, .global_batch = 8, .microbatch = 2};
  spec.train.eval_interval = 2, spec.train.eval_samples = 8;
  const data::MockTokens text(1, spec.model.vocab, false), validation(2, spec.model.vocab, false);
  for (const int steps : {2, 4}) {  // the second resumes the first
    spec.train.steps = steps;
    const train::Job job = train::make_job(spec).value();
    comm::run_local(job.mesh.world(), [&](comm::World& world) {
      train::RunMetrics metrics(job, {.directory = folder, .resumes = true});
      std::vector<train::RunObserver*> observers;
      if (world.rank() == Rank{0}) observers = {&metrics};
      train::train(job, world, {&text, &validation, "made-up"},
                   {.save = folder, .start = train::Start::kResumeOrNew}, false, observers);
    });
  }
  std::ifstream lines(train::metrics_path(folder));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) std::puts(line.c_str());
  return count == 12 ? 0 : 1;  // start, resume, 4 steps, 2 evaluations, 2 saves, 2 ends
}

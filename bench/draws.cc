// What a draw of initial weights takes: one block of a llama of 8 B parameters, on one thread and
// on two, in turns. bench_draws [turns]
#include <ATen/ops/empty.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "bench/median.h"
#include "lockstep/model/catalog.h"
#include "lockstep/optim/init.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  const int turns = argc > 1 ? std::atoi(argv[1]) : 15;
  model::ModelConfig config = model::find("llama3-8b")->config;
  config.layers = 1;
  config.ffn = 1024;  // a fifth of a block, so that a turn is short
  const model::Model model = model::describe(config).value();
  const model::FlatLayout layout = model::flat_layouts(model)[1];
  const at::Tensor out = at::empty({layout.size}, at::kFloat);
  std::vector<double> alone, both, ratio;
  for (int turn = 0; turn <= turns; ++turn) {
    double time[2];
    for (const int threads : {1, 2}) {
      const auto start = std::chrono::steady_clock::now();
      optim::write_initial(model, 1, layout, {0, layout.size}, 1234, out, {}, {.threads = threads});
      time[threads - 1] =
          std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start)
              .count() /
          static_cast<double>(layout.size);
    }
    if (turn == 0) continue;  // first touch
    alone.push_back(time[0]);
    both.push_back(time[1]);
    ratio.push_back(time[0] / time[1]);
  }
  std::printf(
      "%lld elements, %d turns: %.1f ns a draw on one thread, %.1f on two, %.2f x (medians)\n",
      static_cast<long long>(layout.size), turns, median(alone), median(both), median(ratio));
}

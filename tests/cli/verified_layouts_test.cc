// docs/verified-layouts.md is what `lockstep verify` finds; LOCKSTEP_UPDATE_GOLDEN=1 rewrites it.
#include <gtest/gtest.h>

#if LOCKSTEP_WITH_TORCH
#include <future>

#include "tests/cli/program.h"
#include "tests/support/golden.h"

namespace lockstep::cli {
namespace {

class VerifiedLayouts : public Binary {};

constexpr const char* kVerifiedIntroduction = R"(# Verified layouts

Each layout below trained three steps in f64 on made-up text, and its loss, gradient norm, gradients, moments and
parameters were compared with those of one rank. A line says how close they came: the largest difference of any
gradient or moment of a step over the largest value of its unit, and the same for the parameters after all steps.
Bounds are 1e-12 and 1e-10, and where tensor ranks cut the sums of matrix products 1e-10 and 1e-8.
Layouts of one class ended in the same bits; where every bit of every step is that of the first of its class, what was
measured there holds, and the line repeats it. Bytes sent on every axis and tensor bytes after every op were exactly as
predicted in every layout; `peak memory` compares the highest point inside an op.

The selection is a covering array: every pair of settings that can occur together occurs, on each number of ranks.
`lockstep verify --layouts all --ranks 8` tries every layout. [Vocabulary](vocabulary.md#proof).

By command, on 16 November 2026: `lockstep verify --layouts triples --ranks 8` verified 757 layouts, every triple of
settings, at most 3.6e-15 off in gradients and 9.3e-13 in parameters. By command, too: `lockstep verify
examples/mixtral.toml --layouts triples --ranks 8` with the batch of the second table, 726 layouts, ranks that share
experts among them (2.2e-15 and 1.5e-13 of those looked at); on 19 November 2026 `lockstep verify --layouts pairs --ranks 8
--set model.layers=17 --steps 2` with `--labels one`, `sparse`, `cuts` and `but-last`, 306 layouts each (3.5e-15 and
2.1e-12). Pairs on 8 ranks with 17 layers of
`examples/gpt2.toml` (186 layouts; 1.7e-15 and 5.2e-14), `qwen2.toml` (179; 2.9e-15, 2.0e-14), `qwen3.toml` (179;
3.0e-15, 1.7e-13) and `mistral.toml` (179; 4.2e-15, 7.8e-13) were verified too, with `--set model.layers=17
--set batch.seq=16 --set batch.global_batch=16 --set batch.microbatch=1`; on 18 November 2026, with the last three of these,
`olmo2.toml` (94; 2.3e-15, 2.5e-12) and, with `--set model.window=5`, `gemma2.toml` (162; 2.6e-15, 2.2e-13). On 19 November
2026 also pairs on 8 ranks of a mixture with a sigmoid router, groups, biases, shared experts, a dense block first and both
losses, whole experts on tensor ranks among them: 304 layouts (3.1e-15, 3.2e-13).

The tables are written by a test that repeats them and fails when a line changes.
)";

struct VerifiedRun {
  const char* title;
  const char* words;  // as a reader types them in the project's folder
};

constexpr VerifiedRun kPages[] = {
    {"Dense, separate head", "verify --layouts pairs --markdown --ranks 4"},
    {"Mixture of experts, head tied to the embedding",
     "verify examples/mixtral.toml --layouts pairs --markdown --ranks 4 --set model.tied=true "
     "--set batch.seq=16 --set batch.global_batch=16 --set batch.microbatch=1"}};

// Both models at once: ranks of small worlds leave a core idle now and then.
TEST_F(VerifiedLayouts, AreThoseOfThePage) {
  std::vector<std::future<Ran>> running;
  for (const VerifiedRun& page : kPages)
    running.push_back(std::async(std::launch::async, [this, &page] {
      std::string words = page.words;
      if (const auto at = words.find("examples/"); at != std::string::npos)
        words.insert(at, support::source_dir() + "/");
      return run(words);
    }));
  std::string text = kVerifiedIntroduction;
  for (std::size_t i = 0; i < running.size(); ++i) {
    const Ran ran = running[i].get();
    EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
    text += std::string("\n## ") + kPages[i].title + "\n\n`lockstep " + kPages[i].words + "`\n\n" +
            ran.out;
    std::cout << ran.out.substr(0, ran.out.find('\n')) << "\n";
  }
  EXPECT_TRUE(support::matches_golden("../../docs/verified-layouts.md", text));
}

}  // namespace
}  // namespace lockstep::cli
#endif

// What people type who come from elsewhere, or in a hurry: each is answered with what to type.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/cli/answer.h"
#include "tests/support/golden.h"

namespace lockstep::cli {
namespace {

std::string tiny() { return support::source_dir() + "/examples/tiny.toml"; }

struct Habit {
  const char* words;   // behind `lockstep`; FILE is a run file
  const char* answer;  // that the error has
};

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) words.push_back(word == "FILE" ? tiny() : word);
  return words;
}

const Habit kHabits[] = {
    // Commands.
    {"run FILE", "here it is `lockstep train FILE`"},
    {"pretrain FILE", "here it is `lockstep train FILE`"},
    {"finetune FILE", "here it is `lockstep train FILE`"},
    {"fit", "here it is `lockstep train FILE`"},
    {"resume out", "here it is `lockstep train FILE --save DIR --resume`"},
    {"continue out", "here it is `lockstep train FILE --save DIR --resume`"},
    {"chat out", "here it is `lockstep generate DIR --prompt TEXT`"},
    {"inference", "here it is `lockstep generate DIR --prompt TEXT`"},
    {"torchrun FILE", "here it is `lockstep launch train FILE --save DIR`"},
    {"version", "here it is `lockstep --version`"},
    {"export out", "here it is `lockstep convert FROM TO`"},
    {"tokenize a.txt", "here it is `lockstep data from-text FILE... --out NAME`"},
    {"optimize", "here it is `lockstep plan`"},
    {"estimate", "here it is `lockstep plan`"},
    {"profile FILE", "`lockstep train FILE --trace OUT`"},
    {"validate FILE", "here it is `lockstep config check FILE`"},
    {"check FILE", "here it is `lockstep config check FILE`"},
    {"show FILE", "here it is `lockstep config show FILE`"},
    {"models", "here it is `lockstep model --list`"},
    {"gpus", "here it is `lockstep cluster --list`"},
    {"memory", "here it is `lockstep model NAME`"},
    {"test FILE", "here it is `lockstep verify FILE`"},
    {"plot", "here it is `lockstep simulate --list`"},
    {"evaluate FILE", "here it is `lockstep train FILE --set train.eval_interval=100`"},
    {"env", "here it is `lockstep doctor`"},
    {"create", "here it is `lockstep init FILE`"},
    {"trian FILE", "did you mean `train`?"},
    // Options.
    {"train --model llama3-8b", "`lockstep init FILE --model NAME` writes one"},
    {"generate --model out", "leave the option out: MODEL is an argument"},
    {"config check --file FILE", "leave the option out: FILE is an argument"},
    {"report --run out", "leave the option out: RUN is an argument"},
    {"launch --config FILE train", "a run file is an argument, `lockstep train FILE`"},
    {"config check FILE --learning-rate 1", "here it is --lr VALUE"},
    {"config check FILE --learning_rate=1", "here it is --lr VALUE"},
    {"config check FILE --max-steps 5", "here it is --steps VALUE"},
    {"config check FILE --train-iters 5", "here it is --steps VALUE"},
    {"config check FILE --tensor-model-parallel-size 2", "here it is --tp VALUE"},
    {"config check FILE --pipeline-model-parallel-size 2", "here it is --pp VALUE"},
    {"config check FILE --context-parallel-size 2", "here it is --cp VALUE"},
    {"config check FILE --expert-model-parallel-size 2", "here it is --ep VALUE"},
    {"config check FILE --micro-batch-size 2", "here it is --microbatch VALUE"},
    {"config check FILE --global-batch-size 2", "here it is --global-batch VALUE"},
    {"config check FILE --seq-length 2", "here it is --seq VALUE"},
    {"config check FILE --block-size 2", "here it is --seq VALUE"},
    {"config check FILE --weight-decay 2", "here it is --set train.weight_decay=VALUE"},
    {"config check FILE --clip-grad 2", "here it is --set train.clip=VALUE"},
    {"config check FILE --num-layers 2", "here it is --set model.layers=VALUE"},
    {"config check FILE --zero-stage 2", "here it is --zero VALUE"},
    {"config check FILE --epochs 2", "here it is --steps N"},
    {"config check FILE --batch-size 2", "here it is --global-batch N"},
    {"config check FILE --fp16", "here it is --dtype bf16: fp16 needs loss scaling"},
    {"config check FILE --bf16", "here it is --dtype bf16"},
    {"train FILE --output-dir out", "here it is --save DIR"},
    {"train FILE --save-steps 5", "here it is --save-interval N"},
    {"train FILE --resume-from-checkpoint a", "here it is --load PATH, or --resume"},
    {"train FILE --log-interval 5", "here it is --every N"},
    {"train FILE --synthetic-data", "here it is --mock-data"},
    {"train FILE --gpus 8", "there are as many ranks as the degrees multiply to"},
    {"train FILE --nproc-per-node=8", "there are as many ranks as the degrees multiply to"},
    {"train --config FILE", "leave the option out: a run file is an argument"},
    {"train FILE -v", "leave it out"},
    // Values.
    {"config check FILE --dtype float32", "here it is called `f32`"},
    {"config check FILE --dtype bfloat16", "here it is called `bf16`"},
    {"config check FILE --dtype fp16", "it needs loss scaling"},
    {"config check FILE --schedule Interleaved1F1B", "here it is called `interleaved`"},
    {"config check FILE --schedule ZBVZeroBubble", "here it is called `zbv`"},
    {"config check FILE --schedule 1F1B", "did you mean `1f1b`?"},
    {"config check FILE --set device.kind=gpu", "here it is called `cuda`"},
    {"config check FILE --set train.block_size=4", "here it is called `batch.seq`"},
    {"simulate --schedule Interleaved1F1B", "here it is called `interleaved`"},
};

TEST(Habits, AreAnsweredWithWhatToType) {
  EXPECT_GE(std::size(kHabits), 60u);
  for (const Habit& habit : kHabits) {
    const Answer told = answer(catalog(), words_of(habit.words));
    EXPECT_EQ(told.code, ExitCode::kUsage) << habit.words;
    EXPECT_NE(told.err.find(habit.answer), std::string::npos) << habit.words << "\n" << told.err;
  }
}

// Every command that an answer names is one.
TEST(Habits, NameCommandsThatThereAre) {
  for (const char* word :
       {"new",      "run",    "resume",  "chat",     "torchrun",  "version", "export",
        "tokenize", "search", "profile", "validate", "show",      "models",  "clusters",
        "memory",   "test",   "draw",    "eval",     "benchmark", "info"}) {
    const std::string told = answer(catalog(), {word}).err;
    const std::size_t at = told.find("here it is `lockstep ");
    ASSERT_NE(at, std::string::npos) << word;
    std::vector<std::string> words =
        words_of(told.substr(at + 21, told.find('`', at + 21) - at - 21));
    while (!words.empty() && (words.back()[0] < 'a' || words.back()[0] > 'z')) words.pop_back();
    const bool is_option = words.empty();  // --version
    if (!is_option) {
      const auto verb = std::ranges::find(catalog(), words[0], &Verb::name);
      ASSERT_NE(verb, catalog().end()) << told;
      words.resize(verb->verbs.empty() ? 1 : std::min<std::size_t>(words.size(), 2));
    }
    words.emplace_back(is_option ? "--version" : "--help");
    EXPECT_EQ(answer(catalog(), words).code, ExitCode::kOk) << word << "\n" << told;
  }
}

TEST(RunFileOptions, AreShortForSet) {
  const auto shown = [](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"config", "show", tiny()};
    words.insert(words.end(), more.begin(), more.end());
    return answer(catalog(), words).out;
  };
  EXPECT_EQ(shown({"--tp", "2", "--lr", "1e-4", "--global-batch=64", "--dtype", "f64"}),
            shown({"--set", "layout.tp=2", "--set", "train.lr=1e-4", "--set",
                   "batch.global_batch=64", "--set", "train.dtype=f64"}));
  EXPECT_NE(shown({"--tp", "2"}), shown({}));
}

TEST(RunFileOptions, AreRefusedBesideTheirOwnSet) {
  const Answer told =
      answer(catalog(), {"config", "check", tiny(), "--tp", "2", "--set", "layout.tp=4"});
  EXPECT_EQ(told.code, ExitCode::kUsage);
  EXPECT_NE(told.err.find("--tp 2 and --set layout.tp=4 both set layout.tp"), std::string::npos)
      << told.err;
}

}  // namespace
}  // namespace lockstep::cli

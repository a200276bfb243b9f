#include "lockstep/planner/emit/emit.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "lockstep/model/catalog.h"
#include "lockstep/planner/layout_of.h"
#include "lockstep/planner/seek.h"
#include "tests/planner/emit/read_script.h"
#include "tests/planner/random_question.h"
#include "tests/support/golden.h"

namespace lockstep::planner {
namespace {

// Options and keys that the frameworks' own parsers know.
std::set<std::string> known_names() {
  std::ifstream file(support::source_dir() + "/tests/golden/plan/emit_names.txt");
  std::set<std::string> names;
  for (std::string word; file >> word;) names.insert(word);
  return names;
}

bool has_words(const Framework& framework, const model::ModelConfig& model) {
  spec::Layout one;
  one.microbatches = 1;
  return emit(framework, {model, one, {1024, 1, 1}}).ok();
}

// A problem, its answer for a framework, and the script of that.
struct Planned {
  Question question;
  Finalist found;
  Job job;
  std::string text;
};

// Of a random problem that the framework has words for and that some layout fits.
Planned plan_any(const Framework& framework, RandomQuestions& random) {
  for (;;) {
    Question q = random.next();
    const model::ModelConfig& model = random.model();
    if (!has_words(framework, model)) continue;
    if (!framework.fp8) q.precision = cost::Precision::kBf16;
    q.framework = &framework;
    const Sought sought = seek(q);
    if (sought.best.empty()) continue;
    const Finalist& best = sought.best.front();
    Job job{model,
            layout_of(best),
            {q.seq, q.global_batch, std::int64_t(best.priced.request.microbatch)},
            q.precision == cost::Precision::kFp8};
    auto script = emit(framework, job);
    EXPECT_TRUE(script.ok()) << random.name();
    return {q, best, job, script->text};
  }
}

class Frameworks : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Each, Frameworks, ::testing::Values("megatron", "torchtitan", "deepspeed"),
                         [](const auto& name) { return std::string(name.param); });

// What is written is what was sought and priced, to the last setting, in words that exist.
TEST_P(Frameworks, ScriptsReadBackAsWhatWasPriced) {
  const Framework& framework = *find_framework(GetParam());
  const std::set<std::string> known = known_names();
  RandomQuestions random(21);
  int piped = 0;
  for (int round = 0; round < 30; ++round) {
    const Planned planned = plan_any(framework, random);
    SCOPED_TRACE(random.name() + "\n" + planned.text);
    const ReadScript read = read_script(framework.name, planned.text, planned.job.model.layers);
    EXPECT_EQ(to_text(read.layout), to_text(planned.job.layout));
    EXPECT_EQ(read.layout, planned.job.layout);
    EXPECT_EQ(read.batch.global_batch, planned.job.batch.global_batch);
    EXPECT_EQ(read.batch.microbatch, planned.job.batch.microbatch);
    EXPECT_EQ(read.fp8, planned.job.fp8);
    for (const std::string& name : read.names) EXPECT_TRUE(known.contains(name)) << name;
    const auto again = time_layout(planned.question, read.layout, read.batch.microbatch);
    ASSERT_TRUE(again.ok());
    EXPECT_NEAR(again->seconds / planned.found.seconds, 1, 1e-9);
    EXPECT_TRUE(lacking(framework, read.layout, again->priced.request).empty());
    piped += read.layout.degrees.pp > 1 ? 1 : 0;
  }
  EXPECT_GT(piped, 0);
}

std::string megatron_text(const char* model, const char* layout, bool fp8 = false) {
  return emit(*find_framework("megatron"),
              {model::find(model)->config, *spec::parse_layout(layout), {4096, 2048, 1}, fp8})
      ->text;
}

// Stages that layers do not divide, blocks and eight bits are not lost.
TEST(Emit, WritesStagesBlocksAndFp8) {
  const std::string text = megatron_text(
      "llama3-405b", "tp8 pp4 dp64 zero1 1f1b m32 layers=32x2+31x2 recompute=full:3x4", true);
  for (const char* line :
       {"--pipeline-model-parallel-layout 'Et*32|t*32|t*31|t*31L' ", "--fp8-format hybrid ",
        "--recompute-method block ", "--recompute-num-layers 3 ", "--use-tp-pp-dp-mapping ",
        "--num-query-groups 8 ", "--rope-scaling-factor 8 ", "CUDA_DEVICE_MAX_CONNECTIONS=1\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
}

TEST(Emit, WritesLatentAttentionAndExperts) {
  const std::string text = megatron_text("deepseek-v3", "dp64 ep64 zero1 m32");
  for (const char* line :
       {"--multi-latent-attention ", "--kv-lora-rank 512 ", "--q-lora-rank 1536 ",
        "--num-experts 256 ", "--moe-layer-freq '([0]*3+[1]*58)' ", "--moe-ffn-hidden-size 2048 ",
        "--moe-shared-expert-intermediate-size 2048 ", "--expert-model-parallel-size 64 "})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  EXPECT_EQ(text.find("--group-query-attention"), std::string::npos);
}

// The name of a model stands in a comment of the script, and nowhere ends it.
TEST(Emit, NamesRunNothing) {
  for (const char* framework : {"megatron", "torchtitan", "deepspeed"}) {
    const auto script_of = [&](const char* name) {
      model::ModelConfig model = model::find("llama3-8b")->config;
      model.name = name;
      return emit(*find_framework(framework),
                  {model, *spec::parse_layout("dp8 zero1 m4"), {4096, 32, 1}});
    };
    const auto plain = script_of("llama3-8b"), forged = script_of("x\ntouch pwned #\r\x7f");
    if (!forged.ok()) continue;  // torchtitan knows models by their names
    EXPECT_EQ(std::ranges::count(forged->text, '\n'), std::ranges::count(plain->text, '\n'));
    EXPECT_EQ(forged->text.find("\ntouch"), std::string::npos);
  }
}

// A model is written whole or not at all.
TEST(Emit, RefusesModelsWithoutWords) {
  EXPECT_FALSE(has_words(*find_framework("megatron"), model::find("gemma2-9b")->config));
  EXPECT_FALSE(has_words(*find_framework("megatron"), model::find("olmo2-7b")->config));
  EXPECT_FALSE(has_words(*find_framework("torchtitan"), model::find("llama2-7b")->config));
  EXPECT_TRUE(has_words(*find_framework("torchtitan"), model::find("llama3-8b")->config));
}

}  // namespace
}  // namespace lockstep::planner

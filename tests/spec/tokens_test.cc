#include "lockstep/spec/tokens.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <random>

#include "lockstep/data/token_source.h"
#include "lockstep/data/token_writer.h"
#include "lockstep/mesh/divisors.h"

namespace lockstep::spec {
namespace {

// A corpus in which every token is a different number.
std::string write_corpus(const std::string& name, std::int64_t documents, std::int64_t length) {
  const std::string prefix = testing::TempDir() + name;
  data::TokenWriter writer(files::real_disk(), prefix, data::TokenType::kI32);
  std::vector<std::int64_t> document(static_cast<std::size_t>(length));
  for (std::int64_t i = 0; i < documents; ++i) {
    for (std::int64_t j = 0; j < length; ++j)
      document[static_cast<std::size_t>(j)] = i * length + j;
    EXPECT_TRUE(writer.add(document).ok());
  }
  writer.finish();
  return prefix;
}

Spec spec_of(const std::string& file) {
  Spec spec;
  spec.model.vocab = 1 << 30;
  spec.batch = {.seq = 16, .global_batch = 48, .microbatch = 1, .ramp = {12, 12, 400}};
  spec.train.steps = 60;
  spec.data = {.files = {file}, .shares = {1, 0, 0}, .seed = 7};
  return spec;
}

// What every rank of one step reads, by sample.
void read_step(const Spec& spec, const data::CorpusTokens& tokens, std::int64_t step,
               std::map<std::int64_t, std::vector<std::int64_t>>& seen) {
  const StepBatch batch = batch_of_step(spec.batch.ramp, spec.batch.global_batch, step);
  const std::int64_t dp = spec.layout.degrees.dp, rows = spec.batch.microbatch;
  const data::StepSamples dealt{batch.first, batch.sequences / (dp * rows), rows};
  std::vector<std::int64_t> text(16), labels(16);
  for (std::int64_t rank = 0; rank < dp; ++rank)
    for (std::int64_t microbatch = 0; microbatch < dealt.microbatches; ++microbatch)
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t sample = dealt.sample(rank, microbatch, row);
        tokens.read(sample, text, labels);
        EXPECT_TRUE(seen.emplace(sample, text).second) << "sample " << sample << " twice";
      }
}

// A run that is laid out anew 50 times, opening its data each time, at random steps.
TEST(Tokens, FiftyChangesOfTheLayoutSkipAndRepeatNothing) {
  const std::string file = write_corpus("tokens.changes", 300, 97);
  Spec spec = spec_of(file);
  std::map<std::int64_t, std::vector<std::int64_t>> whole, changed;
  const auto undisturbed = open_training(spec);
  ASSERT_TRUE(undisturbed.ok()) << undisturbed.error().message;
  for (std::int64_t step = 0; step < spec.train.steps; ++step)
    read_step(spec, **undisturbed, step, whole);

  std::mt19937 random(2026);
  std::map<std::int64_t, int> changes;  // at the begin of a step
  for (int i = 0; i < 50; ++i) ++changes[static_cast<std::int64_t>(random() % 60)];
  int made = 0;
  auto tokens = open_training(spec);
  for (std::int64_t step = 0; step < spec.train.steps; ++step) {
    for (int i = 0; i < changes[step]; ++i, ++made) {
      const std::int64_t choices[] = {1, 2, 3, 4, 6, 12};
      spec.layout.degrees.dp = choices[random() % 6];
      const std::int64_t rest = 12 / spec.layout.degrees.dp;
      do spec.batch.microbatch = 1 + static_cast<std::int64_t>(random() % 12);
      while (rest % spec.batch.microbatch != 0);
      tokens = open_training(spec);
      ASSERT_TRUE(tokens.ok());
      EXPECT_EQ((*tokens)->digest(), (*undisturbed)->digest());
    }
    read_step(spec, **tokens, step, changed);
  }
  EXPECT_EQ(made, 50);
  EXPECT_EQ(changed, whole);
  EXPECT_EQ(static_cast<std::int64_t>(whole.size()), num_samples(spec));
  EXPECT_EQ(whole.begin()->first, 0);
  EXPECT_EQ(whole.rbegin()->first, num_samples(spec) - 1);
}

TEST(Tokens, ASpecIsReadFromTheDataTable) {
  const auto read = [](const std::string& data) {
    config::Report report;
    const auto document = config::parse_document(
        "[model]\nname = \"gpt2\"\n[batch]\nseq = 64\nglobal_batch = 8\n[data]\n" + data,
        "somewhere/run.toml", config::Format::kToml, report);
    const auto spec = read_spec(*document, report);
    std::string messages;
    for (const auto& found : report.diagnostics()) messages += found.message + "\n";
    return std::pair(spec ? spec->data : data::Corpus{}, messages);
  };
  const auto [corpus, nothing] = read("files = [\"web\", \"/abs/code\"]\nweights = [7, 3]\n");
  EXPECT_EQ(nothing, "");
  EXPECT_EQ(corpus.files, (std::vector<std::string>{"somewhere/web", "/abs/code"}));
  EXPECT_EQ(corpus.weights, (std::vector<double>{7, 3}));
  EXPECT_EQ(corpus.shares, (data::Shares{969, 30, 1}));
  EXPECT_EQ(corpus.seed, 1234U);
  EXPECT_EQ(read("files = [\"a\"]\nseed = 5\nsplit = [9, 1]\n").first.shares,
            (data::Shares{9, 1, 0}));
  EXPECT_EQ(read("files = [\"a\"]\nseed = 5\n").first.seed, 5U);
  EXPECT_EQ(read("").second, "");

  EXPECT_EQ(read("weights = [1]\nseed = 3\n").second,
            "`data.weights` is set, but there are no files\n"
            "`data.seed` is set, but there are no files\n");
  EXPECT_EQ(read("files = [\"a\", \"b\"]\nweights = [1]\nsplit = [0, 1]\n").second,
            "`data.weights` has 1 item for 2 files\n"
            "`data.split` leaves nothing to train on: its first share is 0\n");
  EXPECT_EQ(read("files = []\nsplit = [1, 2, 3, 4]\n").second,
            "`data.files` names no file\n`data.split` has 4 shares; it takes 1 to 3\n");
  EXPECT_EQ(read("files = [\"a\"]\nweights = [0]\nseed = 4294967296\n").second,
            "`data.weights[0]` must be above 0, not 0\n"
            "`data.seed` must be between 0 and 4294967295, not 4294967296\n");
  EXPECT_EQ(read("files = [1]\nweights = [1, 2]\nsplit = [true]\n").second,
            "`data.files[0]` must be text, not a whole number\n"
            "`data.split[0]` must be a number, not true or false\n");
  EXPECT_EQ(read("files = [\"a\"]\nweights = []\nsplit = []\n").second,
            "`data.weights` has 0 items for 1 file\n`data.split` has 0 shares; it takes 1 to 3\n");
  EXPECT_EQ(read("files = [\"a\"]\n[train]\nseed = 4294967296\n").second,
            "`train.seed` = 4294967296 cannot order the data: seeds of Megatron's order end at "
            "4294967295\n");
}

}  // namespace
}  // namespace lockstep::spec

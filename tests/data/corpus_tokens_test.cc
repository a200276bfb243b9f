#include "lockstep/data/corpus_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "tests/data/pairs.h"

namespace lockstep::data {
namespace {

std::unique_ptr<CorpusTokens> open(const Corpus& corpus, const Demand& demand,
                                   Split split = Split::kTrain) {
  auto opened = CorpusTokens::open(corpus, split, demand);
  EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().message);
  return opened.ok() ? *std::move(opened) : nullptr;
}

std::string refusal(const Corpus& corpus, const Demand& demand, Split split = Split::kTrain) {
  const auto opened = CorpusTokens::open(corpus, split, demand);
  return opened.ok() ? "" : opened.error().message;
}

std::vector<std::int64_t> read(const CorpusTokens& tokens, std::int64_t sample, std::size_t seq) {
  std::vector<std::int64_t> text(seq), labels(seq);
  tokens.read(sample, text, labels);
  for (std::size_t i = 0; i + 1 < seq; ++i) EXPECT_EQ(labels[i], text[i + 1]);
  EXPECT_EQ(tokens.valid_labels(sample, static_cast<std::int64_t>(seq)), std::ssize(labels));
  EXPECT_EQ(std::ranges::count(labels, kIgnoredLabel), 0);
  text.push_back(labels.back());
  return text;
}

const std::vector<std::int32_t> kLengths = {7, 1, 0, 12, 3, 9, 30, 2, 5, 11};

TEST(CorpusTokens, OnePassReadsEveryTokenOnce) {
  const std::string folder = fresh_folder();
  write_pair(folder + "a", distinct(kLengths));
  for (const std::int64_t seq : {1, 4, 9}) {
    const auto tokens = open({.files = {folder + "a"}, .shares = {1, 0, 0}}, {.seq = seq});
    EXPECT_EQ(tokens->samples(), 79 / seq);
    std::set<std::int64_t> seen;
    for (std::int64_t i = 0; i < tokens->samples(); ++i) {
      auto text = read(*tokens, i, static_cast<std::size_t>(seq));
      text.pop_back();
      for (const std::int64_t token : text) EXPECT_TRUE(seen.insert(token).second);
    }
  }
}

TEST(CorpusTokens, SplitsShareNoDocument) {
  const std::string folder = fresh_folder();
  write_pair(folder + "a", distinct(std::vector<std::int32_t>(100, 10)));
  std::map<std::int64_t, Split> owner;
  for (const Split split : kSplits) {
    const auto tokens =
        open({.files = {folder + "a"}, .shares = {80, 15, 5}}, {.seq = 7, .samples = 300}, split);
    for (std::int64_t i = 0; i < tokens->samples(); ++i)
      for (const std::int64_t token : read(*tokens, i, 7))
        EXPECT_EQ(owner.emplace(token / 10, split).first->second, split);
  }
  EXPECT_EQ(owner.size(), 100U);
}

TEST(CorpusTokens, BlendsByWeightsOrBySamples) {
  const std::string folder = fresh_folder();
  write_pair(folder + "a", distinct(std::vector<std::int32_t>(50, 10)));
  write_pair(folder + "b", distinct(std::vector<std::int32_t>(150, 10), 500));
  Corpus corpus{.files = {folder + "a", folder + "b"}, .weights = {1, 4}, .shares = {1, 0, 0}};
  const auto weighted = open(corpus, {.seq = 5, .samples = 100});
  std::int64_t of_a = 0;
  for (std::int64_t i = 0; i < 100; ++i) of_a += read(*weighted, i, 5)[0] < 500 ? 1 : 0;
  EXPECT_EQ(of_a, 20);
  EXPECT_EQ(weighted->parts()[0].taken, 20);
  EXPECT_EQ(weighted->parts()[1].taken, 80);

  corpus.weights.clear();
  const auto pass = open(corpus, {.seq = 5});
  EXPECT_EQ(pass->samples(), 499 / 5 + 1499 / 5);
  EXPECT_EQ(pass->parts()[0].taken, pass->parts()[0].built);
  EXPECT_EQ(pass->parts()[1].taken, pass->parts()[1].built);
  std::set<std::int64_t> firsts;
  for (std::int64_t i = 0; i < pass->samples(); ++i) firsts.insert(read(*pass, i, 5)[0]);
  EXPECT_EQ(firsts.size(), static_cast<std::size_t>(pass->samples()));
  EXPECT_EQ(open(corpus, {.seq = 5, .samples = 5000})->samples(), 5000);

  corpus.weights = {1, 1};  // one pass ends with the first file that is used up
  EXPECT_EQ(open(corpus, {.seq = 5})->samples(), 2 * 99);
}

TEST(CorpusTokens, ADigestIsThatOfTheOrder) {
  const std::string folder = fresh_folder();
  write_pair(folder + "a", distinct(kLengths));
  std::filesystem::create_directory(folder + "moved");
  write_pair(folder + "moved/b", distinct(kLengths));
  const Corpus corpus{.files = {folder + "a"}, .shares = {1, 0, 0}, .seed = 3};
  const Demand demand{.seq = 4, .samples = 10};
  const Hash128 digest = open(corpus, demand)->digest();
  auto changed = corpus;
  changed.files = {folder + "moved/b"};
  EXPECT_EQ(open(changed, demand)->digest(), digest);
  EXPECT_EQ(open(corpus, {.seq = 4, .samples = 19})->digest(), digest);  // still one epoch
  EXPECT_NE(open(corpus, {.seq = 4, .samples = 20})->digest(), digest);
  EXPECT_NE(open(corpus, {.seq = 5, .samples = 10})->digest(), digest);
  changed = corpus;
  changed.seed = 4;
  EXPECT_NE(open(changed, demand)->digest(), digest);
  changed = corpus;
  changed.shares = {9, 1, 0};
  EXPECT_NE(open(changed, demand)->digest(), digest);
}

// What a run that is made longer or shorter relies on: the samples it has in common with the run
// before are the same, or the digest is another and it is refused.
TEST(CorpusTokens, ALongerRunHasTheSameSamplesOrAnotherDigest) {
  const std::string folder = fresh_folder();
  write_pair(folder + "a", distinct(kLengths));
  write_pair(folder + "b", distinct({4, 40, 6, 17, 8}));
  int kept = 0, refused = 0;
  for (const auto& [files, weights] : std::vector<std::pair<int, std::vector<double>>>{
           {1, {}}, {2, {}}, {2, {1, 3}}, {2, {0.3, 0.7}}}) {
    Corpus corpus{
        .files = {folder + "a", folder + "b"}, .weights = weights, .shares = {1, 0, 0}, .seed = 3};
    corpus.files.resize(static_cast<std::size_t>(files));
    std::map<Hash128, std::vector<std::vector<std::int64_t>>> longest;
    for (std::int64_t samples = 4; samples < 90; samples += 3) {
      const auto tokens = open(corpus, {.seq = 5, .samples = samples});
      auto& known = longest[tokens->digest()];
      kept += known.empty() ? 0 : 1;
      refused += known.empty() ? 1 : 0;
      for (std::int64_t i = 0; i < samples; ++i) {
        const auto text = read(*tokens, i, 5);
        if (std::cmp_less(i, known.size()))
          ASSERT_EQ(text, known[static_cast<std::size_t>(i)]) << samples << " " << i;
        else
          known.push_back(text);
      }
    }
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(refused, 20);
}

TEST(CorpusTokens, NamesTheTokenBeyondTheVocabulary) {
  const std::string folder = fresh_folder();
  write_pair(folder + "a", {{1, 2, 3, 4}, {5, 6, 70, 8}}, TokenType::kI32);
  const Corpus corpus{.files = {folder + "a"}, .shares = {1, 0, 0}};
  const auto message = [&](std::int64_t vocab) -> std::string {
    const auto tokens = open(corpus, {.seq = 7, .vocab = vocab});
    try {
      read(*tokens, 0, 7);
    } catch (const IoError& error) {
      EXPECT_EQ(error.error().code, Code::kTokenBeyondVocab);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(71), "");
  EXPECT_EQ(message(70),
            "`" + folder + "a`, document 1, token 2: id 70 is not below the vocabulary of 70");
  write_pair(folder + "a", {{1, -2, 3, 4}, {5, 6, 7, 8}}, TokenType::kI32);
  EXPECT_EQ(message(71),
            "`" + folder + "a`, document 0, token 1: id -2 is not below the vocabulary of 71");
}

TEST(CorpusTokens, RefusesSplitsWithoutText) {
  const std::string folder = fresh_folder();
  write_pair(folder + "a", distinct({10, 10}));
  const Corpus corpus{.files = {folder + "a"}};
  EXPECT_EQ(refusal(corpus, {.seq = 4}, Split::kValidation),
            "the validation split of `" + folder + "a` is empty: of 2 documents none falls to it");
  EXPECT_EQ(
      refusal(corpus, {.seq = 20}),
      "the train split of `" + folder + "a` has 20 tokens in 2 documents; one sample takes 21");
  const Corpus several{.files = {folder + "a", folder + "a"}};
  EXPECT_EQ(
      refusal(several, {.seq = 20, .samples = 3}),
      "the train split of `" + folder + "a` has 20 tokens in 2 documents; one sample takes 21");
}

TEST(CorpusTokens, AnyThreadReadsWhileSamplesAreExpected) {
  const std::string folder = fresh_folder();
  write_pair(folder + "a", distinct(std::vector<std::int32_t>(200, 31)));
  const auto tokens = open({.files = {folder + "a"}, .weights = {1}}, {.seq = 16, .samples = 400});
  std::vector<std::vector<std::int64_t>> alone;
  for (std::int64_t i = 0; i < 400; ++i) alone.push_back(read(*tokens, i, 16));
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (std::int64_t i = thread; i < 400; i += 4) {
        tokens->expect(i, 100);  // beyond the last too
        EXPECT_EQ(read(*tokens, i, 16), alone[static_cast<std::size_t>(i)]);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(ReadAhead, DoesInOrderWhatIsAskedAndDropsWhatWaitsAtTheEnd) {
  std::vector<std::int64_t> done;
  std::mutex mutex;
  std::condition_variable changed;
  {
    ReadAhead ahead([&](std::int64_t first, std::int64_t) {
      const std::lock_guard lock(mutex);
      done.push_back(first);
      changed.notify_one();
    });
    for (std::int64_t i = 0; i < 5; ++i) ahead.ask(i, 1);
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done.size() == 5; });
  }
  EXPECT_EQ(done, (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
  const ReadAhead never_asked([](std::int64_t, std::int64_t) { FAIL(); });
}

}  // namespace
}  // namespace lockstep::data

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/cli/answer.h"

namespace lockstep::cli {
namespace {

// A folder of its own for each test.
class Data : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = testing::TempDir() + "lockstep.data." + test->name() + "/";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    write("text.txt", "one two three\n\nfour five six seven\n\neight\n");
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + name, std::ios::binary) << text;
  }
  Answer run(std::vector<std::string> words) const {
    for (std::string& word : words)
      if (word.starts_with("@")) word = folder_ + word.substr(1);
    words.insert(words.begin(), "data");
    Answer said = answer(data_verb(), words);
    for (std::string* text : {&said.out, &said.err})
      for (std::size_t at = 0; (at = text->find(folder_, at)) != std::string::npos;)
        text->replace(at, folder_.size(), "@");
    return said;
  }
  Answer make() const { return run({"from-text", "@text.txt", "--out", "@a"}); }

  std::string folder_;
};

TEST_F(Data, FromTextInspectVerify) {
  EXPECT_EQ(make().out,
            "wrote @a.bin and @a.idx: 3 documents, 43 tokens below 257, 256 after every document\n"
            "in a run file: [model] vocab = 257, [data] files = [\"@a\"]\n");
  EXPECT_EQ(run({"inspect", "@a"}).out,
            "@a: Megatron, u16\n"
            "  documents   3\n"
            "  tokens     43  86 B\n"
            "  a document has 7 to 21 tokens, half of them at most 15\n"
            "  begins with 111 110 101 32 116 119 111 32\n");
  EXPECT_EQ(run({"verify", "@a", "--vocab", "257", "--end", "256"}).out,
            "ok    @a: 3 documents, 43 tokens, largest id 256\n");
  const Answer bad = run({"verify", "@a", "@none", "--vocab", "120", "--end", "10"});
  EXPECT_EQ(bad.code, ExitCode::kCheckFailed);
  EXPECT_EQ(bad.out,
            "FAIL  @a: ids outside the vocabulary of 120 in 3 documents: first id 256 in document "
            "0, token 14\n"
            "FAIL  @a: 3 documents do not end with id 10: first document 0\n"
            "FAIL  @none: cannot read `@none.bin`: No such file or directory\n");
}

TEST_F(Data, FromTextReplacesNothingUnasked) {
  EXPECT_EQ(make().code, ExitCode::kOk);
  const Answer again = make();
  EXPECT_EQ(again.code, ExitCode::kUsage);
  EXPECT_NE(again.err.find("`@a.bin` exists"), std::string::npos);
  EXPECT_EQ(
      run({"from-text", "@text.txt", "--out", "@a", "--overwrite", "--documents", "file"}).code,
      ExitCode::kOk);
  EXPECT_EQ(run({"from-text", "@nothing", "--out", "@b"}).code, ExitCode::kEnvironment);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "b.bin"));
}

TEST_F(Data, FromTextRefusesWhatIsNoText) {
  std::filesystem::create_directory(folder_ + "dir");
  write("empty.txt", "");
  write("blank.txt", "\n  \n\t\r\n");
  write("binary", std::string("some\0thing", 10));
  write("late", std::string(100'000, 'x') + "\x01");
  write("wide.txt", std::string("a\0b\0", 4));  // UTF-16
  const std::pair<const char*, const char*> refusals[] = {
      {"empty.txt", "there is no text in `@empty.txt`"},
      {"blank.txt", "there is no text in `@blank.txt`"},
      {"binary", "`@binary` is no text: byte 4 is 0x00"},
      {"late", "`@late` is no text: byte 100000 is 0x01"},
      {"wide.txt", "`@wide.txt` is no text: byte 1 is 0x00"},
      {"dir", "`@dir` is a directory"},
      {"nothing", "cannot read `@nothing`"}};
  for (const auto& [name, told] : refusals) {
    const Answer refused = run({"from-text", "@" + std::string(name), "--out", "@b"});
    EXPECT_EQ(refused.code, ExitCode::kEnvironment) << name;
    EXPECT_NE(refused.err.find(told), std::string::npos) << name << ": " << refused.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ + "b.bin"));
  }
  // Any encoding whose letters are no control characters, and what terminals and printers know.
  write("latin", "na\xefve \x80\xff\x7f\t\f\x1b[1m\a\b\v\r\n");
  EXPECT_EQ(run({"from-text", "@latin", "@empty.txt", "--out", "@b"}).code, ExitCode::kOk);
}

TEST_F(Data, BlendAndSampleOfARun) {
  EXPECT_EQ(make().code, ExitCode::kOk);
  write("run.toml",
        "[model]\nname = \"gpt2\"\nvocab = 257\n[batch]\nseq = 8\nglobal_batch = 4\n"
        "[train]\nsteps = 3\n[data]\nfiles = [\"a\", \"a\"]\nweights = [3, 1]\nsplit = [2, 1]\n");
  // Columns are as wide as the folder's name.
  std::string said = run({"blend", "@run.toml", "--dry-run"}).out;
  const auto both_spaces = [](char a, char b) { return a == ' ' && b == ' '; };
  said.erase(std::unique(said.begin(), said.end(), both_spaces), said.end());
  EXPECT_EQ(
      said,
      "train: 12 samples of 8 tokens, the whole run\n"
      " file weight achieved samples documents tokens passes\n"
      " @a 0.7500 0.7500 9 2 36 2.08 last pass shuffled apart\n"
      " @a 0.2500 0.2500 3 2 36 0.75\n"
      "\n"
      "validation: none: the validation split of `@a` has 7 tokens in 1 documents; one sample "
      "takes 9\n");
  const Answer sample = run({"sample", "@run.toml", "--count", "1", "--first", "3"});
  EXPECT_EQ(sample.code, ExitCode::kOk);
  EXPECT_TRUE(sample.out.starts_with("3: ")) << sample.out;
  EXPECT_EQ(run({"sample", "@run.toml", "--first", "12"}).code, ExitCode::kUsage);
  const auto json = Json::parse(run({"sample", "@run.toml", "--json"}).out);
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->find("samples")->items().size(), 8U);
  EXPECT_EQ(json->find("samples")->items()[0].find("tokens")->items().size(), 9U);
  for (const char* verb : {"blend", "sample"})
    EXPECT_NE(
        run({verb, "@run.toml", "--set", "data.files=[\"none\"]", "--set", "data.weights=[1]"})
            .err.find("none.bin"),
        std::string::npos);
}

}  // namespace
}  // namespace lockstep::cli

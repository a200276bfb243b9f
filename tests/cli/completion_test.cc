// Completions in the shells themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/cli/answer.h"
#include "tests/cli/program.h"

namespace lockstep::cli {
namespace {

class Completion : public Binary {
 protected:
  // What bash offers for the last of these words.
  std::vector<std::string> offered(const std::vector<std::string>& words) {
    std::string line = "COMP_WORDS=(lockstep";
    for (const std::string& word : words) line += " '" + word + "'";
    write("lockstep.bash", answer(catalog(), {"completion", "bash"}).out);
    write("ask.bash", "source lockstep.bash\ncompopt() { :; }\n" + line +
                          ")\nCOMP_CWORD=" + std::to_string(words.size()) +
                          "\n_lockstep\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n");
    const Ran ran = run("-u ask.bash", "", "bash");
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(ran.err, "");
    std::istringstream lines(ran.out);
    std::vector<std::string> all;
    for (std::string one; std::getline(lines, one);) all.push_back(one);
    return all;
  }
};

using Words = std::vector<std::string>;

TEST_F(Completion, OffersCommandsOptionsAndChoices) {
  EXPECT_EQ(offered({"tra"}), Words{"train"});
  EXPECT_EQ(offered({"config", "sh"}), Words{"show"});
  EXPECT_EQ(offered({"train", "run.toml", "--mock"}), Words{"--mock-data"});
  EXPECT_EQ(offered({"train", "--dtype", "f"}), (Words{"f64", "f32"}));
  EXPECT_EQ(offered({"train", "--set", "layout.tp"}), Words{"layout.tp="});
  EXPECT_EQ(offered({"simulate", "--color", "al"}), Words{"always"});
  EXPECT_EQ(offered({"train", "config", "--resu"}), Words{"--resume"});  // a file of that name
}

TEST_F(Completion, KnowsEveryCommand) {
  Words names;
  for (const Verb& verb : catalog()) names.push_back(verb.name);
  Words all = offered({""});
  std::erase_if(all, [](const std::string& word) { return word.starts_with("-"); });
  EXPECT_EQ(all, names);
}

TEST(CompletionForms, AreRefusedByName) {
  const Answer told = answer(catalog(), {"completion", "tcsh"});
  EXPECT_EQ(told.code, ExitCode::kUsage);
  EXPECT_NE(told.err.find("`bash`, `zsh`, `fish` and `man`"), std::string::npos) << told.err;
}

// Each has every option of every command.
TEST(CompletionForms, HaveEverything) {
  for (const char* form : {"bash", "zsh", "fish", "man"}) {
    std::string text = answer(catalog(), {"completion", form}).out;
    std::erase(text, '\\');
    for (const Verb& verb : catalog()) {
      EXPECT_NE(text.find(verb.name), std::string::npos) << form << ": " << verb.name;
      for (const Option& option : verb.options)
        EXPECT_NE(text.find(option.name), std::string::npos) << form << ": --" << option.name;
    }
  }
}

}  // namespace
}  // namespace lockstep::cli

// lockstep completion: the table of commands as a script for a shell, or as a manual page.
#include <algorithm>
#include <array>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "cli/completion/scripts.h"
#include "cli/verbs.h"
#include "lockstep/config/suggest.h"

namespace lockstep::cli {
namespace {

struct Form {
  std::string name;
  std::string (*write)(const std::vector<Verb>& verbs);
};
const std::array kForms = {Form{"bash", bash_completion}, Form{"zsh", zsh_completion},
                           Form{"fish", fish_completion}, Form{"man", manual_page}};

Result<ExitCode> run_completion(const Args& args, Output& output) {
  const std::string name = args.text("FORM");
  const auto form = std::ranges::find(kForms, name, &Form::name);
  if (form == kForms.end()) {
    std::vector<std::string> names;
    for (const Form& one : kForms) names.push_back(one.name);
    return Error{Code::kBadOptionValue, join_parts("there is no completion for `", name, "`"),
                 config::there_are(names)};
  }
  const std::string script = form->write(catalog());
  if (output.json)
    return print_json(
        output,
        Json::object({{"schema", "lockstep.completion/1"}, {"form", name}, {"text", script}}));
  output.out << script;
  return ExitCode::kOk;
}

}  // namespace

Verb completion_verb() {
  return {.name = "completion",
          .summary = "Write completions for bash, zsh or fish, or the manual page",
          .description =
              "To standard output, from the same table as the help. bash: source it, or put it "
              "into the directory bash-completion/completions of your data directory, as "
              "`lockstep`; zsh: as `_lockstep` into a directory of fpath; fish: as "
              "`lockstep.fish` into the directory fish/completions of your configuration; man: "
              "`lockstep.1`.",
          .examples = {{"source <(lockstep completion bash)", "in this shell"},
                       {"lockstep completion man | man -l -", "everything, as a manual page"}},
          .positionals = {{.name = "FORM", .help = "bash, zsh, fish or man"}},
          .run = run_completion};
}

}  // namespace lockstep::cli

#include <ostream>
#include <string>
#include <vector>

#include "cli/verbs.h"
#include "lockstep/base/check.h"
#include "lockstep/base/codes.h"
#include "lockstep/base/text.h"
#include "lockstep/config/suggest.h"

namespace lockstep::cli {
namespace {

void print_page(const CodeRow& row, Output& output) {
  const auto text = [&](std::string_view part, int indent) {
    return wrapped(std::string(part), indent, indent, output.width);
  };
  output.out << text(join_parts(to_text(row.code), ": ", row.title), 0) << '\n'
             << text(row.explanation, 0) << "\nFor example:\n  " << text(row.example, 2)
             << "\nWhat to do:\n  " << text(row.remedy, 2);
}

Result<ExitCode> run_explain(const Args& args, Output& output) {
  std::vector<CodeRow> rows(code_table().begin(), code_table().end());
  if (args.has("CODE")) {
    const std::string text = args.text("CODE");
    std::vector<std::string> known;
    for (const CodeRow& row : rows) known.push_back(to_text(row.code));
    const std::optional<Code> code = parse_code(text);
    std::erase_if(rows, [&](const CodeRow& row) { return row.code != code; });
    if (rows.empty())
      return Error{Code::kBadOptionValue, join_parts("no error code `", text, "`"),
                   config::did_you_mean(text, known, "`lockstep explain` lists all codes")};
  }
  if (output.json)
    return print_json(output,
                      Json::object({{"schema", "lockstep.explain/1"},
                                    {"codes", Json::list(rows, [](const CodeRow& row) {
                                       return Json::object({{"code", to_text(row.code)},
                                                            {"title", row.title},
                                                            {"explanation", row.explanation},
                                                            {"example", row.example},
                                                            {"remedy", row.remedy}});
                                     })}}));
  if (args.has("CODE")) return print_page(rows.front(), output), ExitCode::kOk;
  for (const CodeRow& row : rows) output.out << to_text(row.code) << "  " << row.title << '\n';
  return ExitCode::kOk;
}

}  // namespace

Verb explain_verb() {
  return {.name = "explain",
          .summary = "Explain an error code",
          .description =
              "Every error carries a code that keeps its meaning for ever. This says what it "
              "means, with an example, and what to do; without a code it lists them all.",
          .examples = {{"lockstep explain LS0203", "what LS0203 means"},
                       {"lockstep explain", "all codes"}},
          .positionals = {{.name = "CODE", .help = "LS0203, or 203", .required = false}},
          .run = run_explain};
}

}  // namespace lockstep::cli

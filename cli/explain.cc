#include <ostream>
#include <string>
#include <vector>

#include "cli/verbs.h"
#include "lockstep/base/check.h"
#include "lockstep/base/codes.h"
#include "lockstep/config/suggest.h"

namespace lockstep::cli {
namespace {

Json to_json(const CodeRow& row) {
  return Json::object(
      {{"code", to_text(row.code)}, {"title", row.title}, {"explanation", row.explanation}});
}

ExitCode list_codes(Output& output) {
  if (output.json) {
    Json codes = Json::array();
    for (const CodeRow& row : code_table()) codes.push(to_json(row));
    print_json(output,
               Json::object({{"schema", "lockstep.explain/1"}, {"codes", std::move(codes)}}));
    return ExitCode::kOk;
  }
  for (const CodeRow& row : code_table())
    output.out << to_text(row.code) << "  " << row.title << '\n';
  return ExitCode::kOk;
}

ExitCode run_explain(const Args& args, Output& output) {
  if (!args.has("CODE")) return list_codes(output);
  const std::string text = args.text("CODE");
  const std::optional<Code> code = parse_code(text);
  for (const CodeRow& row : code_table()) {
    if (row.code != code) continue;
    if (output.json)
      print_json(output, Json::object({{"schema", "lockstep.explain/1"},
                                       {"codes", Json::array({to_json(row)})}}));
    else
      output.out << to_text(row.code) << ": " << row.title << "\n\n" << row.explanation << '\n';
    return ExitCode::kOk;
  }
  std::vector<std::string> known;
  for (const CodeRow& row : code_table()) known.push_back(to_text(row.code));
  const std::string advice = config::did_you_mean(text, known);
  return fail(output, Error{Code::kBadOptionValue, join_parts("no error code `", text, "`"),
                            advice.empty() ? "`lockstep explain` lists all codes" : advice});
}

}  // namespace

Verb explain_verb() {
  return {.name = "explain",
          .summary = "Explain an error code",
          .description =
              "Every error carries a code that keeps its meaning for ever. This says "
              "what it means, why it is refused and what to do; without a code it lists "
              "them all.",
          .examples = {{"lockstep explain LS0203", "what LS0203 means"},
                       {"lockstep explain", "all codes"}},
          .positionals = {{.name = "CODE", .help = "LS0203, or 203", .required = false}},
          .run = run_explain};
}

}  // namespace lockstep::cli

// lockstep data verify: reads every token of token files.
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "cli/data/data.h"
#include "cli/table.h"
#include "lockstep/base/check.h"
#include "lockstep/base/units.h"
#include "lockstep/data/token_scan.h"

namespace lockstep::cli {
namespace {

using data::Scan;
using data::TokenFile;

// One file: what was found, or why it cannot be read.
struct Checked {
  std::string file;
  std::optional<Error> error;
  std::int64_t documents = 0, tokens = 0;
  Scan scan;

  bool is_good() const { return !error && scan.is_good(); }
};

std::vector<std::string> problems_of(const Checked& checked, const data::ScanWish& wish) {
  if (checked.error) return {checked.error->message};
  std::vector<std::string> problems;
  const Scan& scan = checked.scan;
  if (scan.first_beyond)
    problems.push_back(join_parts(
        "ids outside the vocabulary of ", with_commas(wish.vocab), " in ",
        counted(scan.documents_beyond, "document"), ": first id ", scan.first_beyond->id,
        " in document ", scan.first_beyond->document, ", token ", scan.first_beyond->token));
  if (scan.first_unended)
    problems.push_back(join_parts(
        counted(scan.documents_unended, "document"), scan.documents_unended == 1 ? " does" : " do",
        " not end with id ", *wish.end, ": first document ", *scan.first_unended));
  return problems;
}

Checked verify(const std::string& name, const data::ScanWish& wish, Output& output) {
  Checked checked{.file = name, .error = {}, .scan = {}};
  const Result<TokenFile> file = TokenFile::open(name);
  if (!file.ok()) {
    checked.error = file.error();
    return checked;
  }
  checked.documents = file->documents();
  checked.tokens = file->tokens();
  const bool is_live = output.live && !output.json;
  checked.scan = data::scan(*file, wish, [&](double share) {
    if (is_live) output.err << strf("\r%s  %3.0f %%", name.c_str(), 100 * share) << std::flush;
  });
  if (is_live) output.err << "\r\x1b[K" << std::flush;
  return checked;
}

void print(const Checked& checked, const data::ScanWish& wish, Output& output) {
  const char* green = output.colour ? "\x1b[32m" : "";
  const char* red = output.colour ? "\x1b[31m" : "";
  const char* plain = output.colour ? "\x1b[0m" : "";
  if (checked.is_good()) {
    output.out << green << "ok    " << plain << checked.file << ": "
               << counted(checked.documents, "document") << ", "
               << counted(checked.tokens, "token");
    if (checked.scan.largest >= 0)
      output.out << ", largest id " << with_commas(checked.scan.largest);
    output.out << "\n";
    return;
  }
  for (const std::string& problem : problems_of(checked, wish))
    output.out << red << "FAIL  " << plain << checked.file << ": " << problem << "\n";
}

Json to_json(const Checked& checked, const data::ScanWish& wish) {
  Json problems = Json::array();
  for (const std::string& problem : problems_of(checked, wish)) problems.push(problem);
  return Json::object({{"file", checked.file},
                       {"ok", checked.is_good()},
                       {"code", checked.error ? Json(to_text(checked.error->code)) : Json()},
                       {"documents", checked.documents},
                       {"tokens", checked.tokens},
                       {"largest_id", checked.scan.largest},
                       {"documents_beyond_vocab", checked.scan.documents_beyond},
                       {"documents_without_end", checked.scan.documents_unended},
                       {"problems", std::move(problems)}});
}

ExitCode run_verify(const Args& args, Output& output) {
  data::ScanWish wish;
  if (args.has("vocab")) wish.vocab = args.integer("vocab");
  if (args.has("end")) wish.end = args.integer("end");
  bool is_good = true;
  Json files = Json::array();
  for (const std::string& name : args.texts("FILE")) {
    const Checked checked = verify(name, wish, output);
    is_good = is_good && checked.is_good();
    if (output.json)
      files.push(to_json(checked, wish));
    else
      print(checked, wish, output);
  }
  if (output.json)
    print_json(output, Json::object({{"schema", "lockstep.data.verify/1"},
                                     {"ok", is_good},
                                     {"files", std::move(files)}}));
  return is_good ? ExitCode::kOk : ExitCode::kCheckFailed;
}

}  // namespace

Verb data_verify_verb() {
  return {
      .name = "verify",
      .summary = "Read token files whole and check every token",
      .description =
          "Checks that index and tokens agree to the byte, that every id lies in the vocabulary, "
          "and, where asked, how documents end. Exit code 1 when anything is wrong.",
      .examples = {{"lockstep data verify corpus --vocab 50257", "ids of GPT-2's tokenizer"},
                   {"lockstep data verify corpus --vocab 257 --end 256", "what from-text wrote"}},
      .options =
          {integer("vocab", "IDS", "Ids must lie below it (default: any that are not negative)")
               .between(1, 2147483647),
           integer("end", "ID", "Every document must end with this id").between(0, 2147483647)},
      .positionals = {{.name = "FILE", .help = "Prefix of a pair, or file", .repeated = true}},
      .run = run_verify};
}

}  // namespace lockstep::cli

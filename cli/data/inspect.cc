// lockstep data inspect: what the index of a token file says.
#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "cli/data/data.h"
#include "cli/table.h"
#include "lockstep/base/check.h"
#include "lockstep/base/units.h"
#include "lockstep/data/token_file.h"

namespace lockstep::cli {
namespace {

using data::TokenFile;

constexpr std::size_t kFirstTokens = 8;

// Lengths of documents.
struct Lengths {
  std::int64_t least = 0, median = 0, most = 0, empty = 0;
};

Lengths lengths_of(const TokenFile& file) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(file.documents()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto document = static_cast<std::int64_t>(i);
    all[i] = file.tokens_before(file.first_piece(document + 1)) -
             file.tokens_before(file.first_piece(document));
  }
  if (all.empty()) return {};
  const auto [least, most] = std::ranges::minmax(all);
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>((all.size() - 1) / 2);
  std::ranges::nth_element(all, middle);
  return {least, *middle, most, std::ranges::count(all, 0)};
}

std::vector<std::int64_t> first_tokens(const TokenFile& file) {
  std::vector<std::int64_t> tokens(std::min(kFirstTokens, static_cast<std::size_t>(file.tokens())));
  file.read_all(0, tokens);
  return tokens;
}

void print(const TokenFile& file, Output& output) {
  const Lengths lengths = lengths_of(file);
  output.out << file.name() << ": " << file.format() << ", " << to_text(file.type()) << "\n";
  Rows rows = {{"  documents", with_commas(file.documents()),
                lengths.empty > 0 ? join_parts(with_commas(lengths.empty), " empty") : ""},
               {"  tokens", with_commas(file.tokens()), to_text(file.bytes())}};
  if (file.pieces() != file.documents())
    rows.insert(rows.begin() + 1,
                {"  pieces", with_commas(file.pieces()), "samples and splits go by these"});
  print_table(output.out, rows, "lrl");
  if (file.documents() > 0)
    output.out << "  a document has " << with_commas(lengths.least) << " to "
               << with_commas(lengths.most) << " tokens, half of them at most "
               << with_commas(lengths.median) << "\n";
  output.out << "  begins with";
  for (const std::int64_t token : first_tokens(file)) output.out << ' ' << token;
  output.out << "\n";
}

Json to_json(const TokenFile& file) {
  const Lengths lengths = lengths_of(file);
  Json first = Json::array();
  for (const std::int64_t token : first_tokens(file)) first.push(token);
  return Json::object({{"file", file.name()},
                       {"format", file.format()},
                       {"type", to_text(file.type())},
                       {"documents", file.documents()},
                       {"pieces", file.pieces()},
                       {"tokens", file.tokens()},
                       {"bytes", file.bytes().value},
                       {"document_tokens", Json::object({{"least", lengths.least},
                                                         {"median", lengths.median},
                                                         {"most", lengths.most},
                                                         {"empty", lengths.empty}})},
                       {"first_tokens", std::move(first)}});
}

ExitCode run_inspect(const Args& args, Output& output) {
  Json files = Json::array();
  bool is_first = true;
  for (const std::string& name : args.texts("FILE")) {
    const Result<TokenFile> file = TokenFile::open(name);
    if (!file.ok()) return fail(output, file.error());
    if (output.json) {
      files.push(to_json(*file));
      continue;
    }
    output.out << (is_first ? "" : "\n");
    is_first = false;
    print(*file, output);
  }
  if (output.json)
    print_json(output,
               Json::object({{"schema", "lockstep.data.inspect/1"}, {"files", std::move(files)}}));
  return ExitCode::kOk;
}

}  // namespace

Verb data_inspect_verb() {
  return {.name = "inspect",
          .summary = "Show what is in token files",
          .description =
              "Reads and checks the index; tokens are not read. An llm.c file is one document.",
          .examples = {{"lockstep data inspect corpus", "corpus.bin and corpus.idx"}},
          .positionals = {{.name = "FILE", .help = "Prefix of a pair, or file", .repeated = true}},
          .run = run_inspect};
}

}  // namespace lockstep::cli

// lockstep data: makes, shows and checks token files. What verbs tell of a run's data is in
// runs.cc.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "cli/data/byte_tokens.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "lockstep/base/check.h"
#include "lockstep/base/units.h"
#include "lockstep/data/byte_text.h"
#include "lockstep/data/token_file.h"
#include "lockstep/data/token_scan.h"
#include "lockstep/data/token_writer.h"

namespace lockstep::cli {
namespace {

using data::TokenFile;

constexpr std::size_t kFirstTokens = 8;

// Lengths of documents.
struct Lengths {
  std::int64_t least = 0, median = 0, most = 0, empty = 0;
};

Lengths lengths_of(const TokenFile& file) {
  std::vector<std::int64_t> all(file.documents());
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
                       {"first_tokens", Json::list(first_tokens(file))}});
}

Result<ExitCode> run_inspect(const Args& args, Output& output) {
  Json files = Json::array();
  bool is_first = true;
  for (const std::string& name : args.texts("FILE")) {
    const TokenFile file = LS_TRY(TokenFile::open(name));
    if (output.json) {
      files.push(to_json(file));
      continue;
    }
    output.out << (is_first ? "" : "\n");
    is_first = false;
    print(file, output);
  }
  if (output.json)
    print_json(output,
               Json::object({{"schema", "lockstep.data.inspect/1"}, {"files", std::move(files)}}));
  return ExitCode::kOk;
}

Verb inspect_verb() {
  return {.name = "inspect",
          .summary = "Show what is in token files",
          .description =
              "Reads and checks the index; tokens are not read. An llm.c file is one document.",
          .examples = {{"lockstep data inspect corpus", "corpus.bin and corpus.idx"}},
          .positionals = {{.name = "FILE", .help = "Prefix of a pair, or file", .repeated = true}},
          .run = run_inspect};
}

using data::Scan;

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
  if (is_live) output.status("");
  return checked;
}

void print(const Checked& checked, const data::ScanWish& wish, Output& output) {
  if (checked.is_good()) {
    output.out << output.paint(style::kGreen, "ok    ") << checked.file << ": "
               << counted(checked.documents, "document") << ", "
               << counted(checked.tokens, "token");
    if (checked.scan.largest >= 0)
      output.out << ", largest id " << with_commas(checked.scan.largest);
    output.out << "\n";
    return;
  }
  for (const std::string& problem : problems_of(checked, wish))
    output.out << output.paint(style::kRed, "FAIL  ") << checked.file << ": " << problem << "\n";
}

Json to_json(const Checked& checked, const data::ScanWish& wish) {
  return Json::object({{"file", checked.file},
                       {"ok", checked.is_good()},
                       {"code", checked.error ? Json(to_text(checked.error->code)) : Json()},
                       {"documents", checked.documents},
                       {"tokens", checked.tokens},
                       {"largest_id", checked.scan.largest},
                       {"documents_beyond_vocab", checked.scan.documents_beyond},
                       {"documents_without_end", checked.scan.documents_unended},
                       {"problems", Json::list(problems_of(checked, wish))}});
}

Result<ExitCode> run_verify(const Args& args, Output& output) {
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

Verb verify_files_verb() {
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

// Both names must be free, or --overwrite given.
Result<void> check_free(const std::string& prefix) {
  for (const char* ending : {".bin", ".idx"}) {
    std::error_code ignored;
    if (std::filesystem::exists(prefix + ending, ignored))
      return Error{Code::kBadOptionValue, join_parts("`", prefix, ending, "` exists"),
                   "choose another --out, or give --overwrite"};
  }
  return {};
}

Result<ExitCode> run_text(const Args& args, Output& output) {
  const std::string prefix = args.text("out");
  if (!args.flag("overwrite")) LS_TRY(check_free(prefix));
  std::vector<std::string> names = args.texts("TEXT");
  if (names.empty()) names = {"-"};
  const data::Written written = LS_TRY(write_byte_tokens(
      names, prefix,
      args.text("documents") == "file" ? data::DocumentEnd::kFile : data::DocumentEnd::kBlankLine));
  if (output.json)
    return print_json(output, Json::object({{"schema", "lockstep.data.from-text/1"},
                                            {"prefix", prefix},
                                            {"documents", written.documents},
                                            {"tokens", written.tokens},
                                            {"vocab", data::kByteVocab},
                                            {"end", data::kByteEnd}}));
  output.out << "wrote " << prefix << ".bin and " << prefix
             << ".idx: " << counted(written.documents, "document") << ", "
             << counted(written.tokens, "token") << " below " << data::kByteVocab << ", "
             << data::kByteEnd
             << " after every document\nin a run file: [model] vocab = " << data::kByteVocab
             << ", [data] files = [\"" << prefix << "\"]\n";
  return ExitCode::kOk;
}

Verb from_text_verb() {
  return {.name = "from-text",
          .summary = "Make token files of plain text, byte by byte",
          .description =
              "For trying things out: ids 0 to 255 are the bytes of the text, 256 ends a document, "
              "so the vocabulary is 257. A blank line ends a document and belongs to none; with "
              "--documents file every file is one. `tools/tokenize` takes real tokenizers.",
          .examples = {{"lockstep data from-text poems.txt --out poems", "poems.bin and poems.idx"},
                       {"cat *.md | lockstep data from-text --out notes", "from standard input"}},
          .options = {text("out", "PREFIX", "Files to write").initially("text"),
                      choice("documents", "END", {"blank-line", "file"}, "What ends a document")
                          .initially("blank-line"),
                      flag("overwrite", "Replace files that exist")},
          .positionals = {{.name = "TEXT",
                           .help = "Text files; - or none: standard input",
                           .required = false,
                           .repeated = true}},
          .run = run_text};
}

}  // namespace

Verb data_verb() {
  return {.name = "data",
          .summary = "Make, check and look into token files",
          .description =
              "Token files are Megatron pairs, PREFIX.bin and PREFIX.idx, or llm.c files ending in "
              ".bin. `tools/tokenize` makes pairs from JSONL with any tokenizer.json; from-text "
              "makes one from plain text, byte by byte, to try things out.",
          .examples = {{"lockstep data from-text poems.txt --out poems", "text to token files"},
                       {"lockstep data inspect poems", "what is in them"},
                       {"lockstep data verify poems --vocab 257", "read and check every token"},
                       {"lockstep data blend run.toml --dry-run",
                        "what a run would take from each file"}},
          .verbs = {inspect_verb(), verify_files_verb(), data_blend_verb(), data_sample_verb(),
                    from_text_verb()}};
}

}  // namespace lockstep::cli

// lockstep data from-text: plain text into token files, byte by byte.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <ostream>
#include <string>
#include <vector>

#include "cli/data/data.h"
#include "cli/table.h"
#include "lockstep/base/check.h"
#include "lockstep/base/units.h"
#include "lockstep/data/byte_text.h"
#include "lockstep/data/token_writer.h"

namespace lockstep::cli {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 16;

Error unreadable(const std::string& why) {
  return {Code::kFileUnreadable, why, "name text files, or - for standard input"};
}

// As file(1) has it: in no encoding that lies over ASCII does text hold these bytes, and nearly all else does.
bool is_of_no_text(unsigned char byte) {
  return byte < 0x20 && !(byte >= '\a' && byte <= '\r') && byte != 0x1b;
}

Result<void> feed(std::istream& in, const std::string& name, data::ByteDocuments& documents) {
  std::string block(kBlock, '\0');
  std::int64_t before = 0;
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())), in.gcount() > 0) {
    const auto text = std::string_view(block).substr(0, static_cast<std::size_t>(in.gcount()));
    if (const auto odd = std::ranges::find_if(text, is_of_no_text); odd != text.end())
      return unreadable(join_parts("`", name, "` is no text: byte ", before + (odd - text.begin()),
                                   strf(" is 0x%02x", static_cast<unsigned char>(*odd))));
    if (auto done = documents.feed(text); !done.ok()) return done;
    before += in.gcount();
  }
  if (in.bad()) return unreadable(join_parts("cannot read `", name, "`: reading failed"));
  return documents.end_file();
}

Result<void> feed_file(const std::string& name, data::ByteDocuments& documents) {
  if (name == "-") return feed(std::cin, "standard input", documents);
  std::error_code ignored;
  std::ifstream file(name, std::ios::binary);
  if (std::filesystem::is_directory(name, ignored))
    return unreadable(join_parts("`", name, "` is a directory"));
  if (!file) return unreadable(join_parts("cannot read `", name, "`: ", std::strerror(errno)));
  return feed(file, name, documents);
}

// Both names must be free, or --overwrite given.
std::optional<Error> taken(const std::string& prefix) {
  for (const char* ending : {".bin", ".idx"}) {
    std::error_code ignored;
    if (std::filesystem::exists(prefix + ending, ignored))
      return Error{Code::kBadOptionValue, join_parts("`", prefix, ending, "` exists"),
                   "choose another --out, or give --overwrite"};
  }
  return std::nullopt;
}

ExitCode run_text(const Args& args, Output& output) {
  const std::string prefix = args.text("out");
  if (!args.flag("overwrite"))
    if (const auto error = taken(prefix)) return fail(output, *error);
  std::vector<std::string> names = args.texts("TEXT");
  if (names.empty()) names = {"-"};
  data::TokenWriter writer(files::real_disk(), prefix, data::TokenType::kU16);
  bool is_empty = true;
  data::ByteDocuments documents(
      args.text("documents") == "file" ? data::DocumentEnd::kFile : data::DocumentEnd::kBlankLine,
      [&](std::span<const std::int64_t> tokens) {
        is_empty = false;
        return writer.add(tokens);
      });
  for (const std::string& name : names)
    if (const auto done = feed_file(name, documents); !done.ok()) return fail(output, done.error());
  if (is_empty)
    return fail(output, unreadable(join_parts("there is no text in `", names[0], "`",
                                              names.size() > 1 ? " and the others" : "")));
  const data::Written written = writer.finish();
  if (output.json) {
    print_json(output, Json::object({{"schema", "lockstep.data.from-text/1"},
                                     {"prefix", prefix},
                                     {"documents", written.documents},
                                     {"tokens", written.tokens},
                                     {"vocab", data::kByteVocab},
                                     {"end", data::kByteEnd}}));
    return ExitCode::kOk;
  }
  output.out << "wrote " << prefix << ".bin and " << prefix
             << ".idx: " << counted(written.documents, "document") << ", "
             << counted(written.tokens, "token") << " below " << data::kByteVocab << ", "
             << data::kByteEnd
             << " after every document\nin a run file: [model] vocab = " << data::kByteVocab
             << ", [data] files = [\"" << prefix << "\"]\n";
  return ExitCode::kOk;
}

}  // namespace

Verb data_text_verb() {
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

}  // namespace lockstep::cli

#include "cli/data/byte_tokens.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <span>
#include <string_view>

#include "lockstep/base/units.h"

namespace lockstep::cli {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 16;

Error unreadable(const std::string& why) {
  return {Code::kFileUnreadable, why, "name text files, or - for standard input"};
}

// As file(1) has it: in no encoding that lies over ASCII does text hold these bytes, and nearly all
// else does.
bool is_of_no_text(unsigned char byte) {
  return byte < 0x20 && !(byte >= '\a' && byte <= '\r') && byte != 0x1b;
}

Result<void> feed(std::istream& in, const std::string& name, data::ByteDocuments& documents) {
  std::string block(kBlock, '\0');
  std::int64_t before = 0;
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())), in.gcount() > 0) {
    const auto text = std::string_view(block).substr(0, in.gcount());
    if (const auto odd = std::ranges::find_if(text, is_of_no_text); odd != text.end())
      return unreadable(join_parts("`", name, "` is no text: byte ", before + (odd - text.begin()),
                                   strf(" is 0x%02x", static_cast<unsigned char>(*odd))));
    LS_TRY(documents.feed(text));
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

}  // namespace

Result<data::Written> write_byte_tokens(const std::vector<std::string>& names,
                                        const std::string& prefix, data::DocumentEnd end) {
  data::TokenWriter writer(files::real_disk(), prefix, data::TokenType::kU16);
  bool is_empty = true;
  data::ByteDocuments documents(end, [&](std::span<const std::int64_t> tokens) {
    is_empty = false;
    return writer.add(tokens);
  });
  for (const std::string& name : names) LS_TRY(feed_file(name, documents));
  if (is_empty)
    return unreadable(join_parts("there is no text in `", names[0], "`",
                                 names.size() > 1 ? " and the others" : ""));
  return writer.finish();
}

}  // namespace lockstep::cli

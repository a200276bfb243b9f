#include "cli/text_file.h"

#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "lockstep/base/check.h"

namespace lockstep::cli {
namespace {

constexpr std::uintmax_t kMostBytes = std::uintmax_t{256} << 20;

std::string reason_of(int error) {
  if (error == 0) return "the file system refused";
  std::string text = std::strerror(error);
  text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

bool is_directory(const std::string& name) {
  std::error_code ignored;
  return std::filesystem::is_directory(name, ignored);
}

}  // namespace

Result<std::string> read_text(const std::string& name) {
  const auto unreadable = [&](const std::string& why) {
    return Error{Code::kFileUnreadable, join_parts("cannot read `", name, "`: ", why),
                 "is the name right?"};
  };
  if (is_directory(name)) return unreadable("it is a directory");
  errno = 0;
  std::ifstream file(name, std::ios::binary);
  if (!file) return unreadable(reason_of(errno));
  std::error_code unknown;
  if (const auto size = std::filesystem::file_size(name, unknown); !unknown && size > kMostBytes)
    return unreadable("it is larger than 256 MiB");
  std::ostringstream text;
  if (file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  if (file.bad() || !text) return unreadable("reading failed");
  return std::move(text).str();
}

namespace {

Result<void> put(const std::string& name, const std::string& text, std::ios::openmode mode) {
  const auto unwritable = [&](const std::string& why) {
    return Error{Code::kUnsuitableEnvironment, join_parts("cannot write `", name, "`: ", why),
                 "name a file in a directory that exists and may be written to"};
  };
  if (is_directory(name)) return unwritable("it is a directory");
  errno = 0;
  std::ofstream file(name, std::ios::binary | mode);
  file << text;
  file.close();
  if (!file) return unwritable(reason_of(errno));
  return {};
}

}  // namespace

Result<void> write_text(const std::string& name, const std::string& text) {
  return put(name, text, std::ios::trunc);
}

Result<void> check_writable(const std::string& name) { return put(name, "", std::ios::app); }

}  // namespace lockstep::cli

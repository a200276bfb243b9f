#include "cli/text_file.h"

#include <algorithm>
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

Error unreadable(const std::string& name, const std::string& why) {
  return {Code::kFileUnreadable, join_parts("cannot read `", name, "`: ", why),
          "is the name right?"};
}

}  // namespace

Result<std::string> read_text(const std::string& name) {
  if (is_directory(name)) return unreadable(name, "it is a directory");
  errno = 0;
  std::ifstream file(name, std::ios::binary);
  if (!file) return unreadable(name, reason_of(errno));
  std::error_code unknown;
  if (const auto size = std::filesystem::file_size(name, unknown); !unknown && size > kMostBytes)
    return unreadable(name, "it is larger than 256 MiB");
  std::ostringstream text;
  if (file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  if (file.bad() || !text) return unreadable(name, "reading failed");
  return std::move(text).str();
}

Result<std::vector<std::string>> files_at(const std::string& name, std::string_view suffix) {
  if (!is_directory(name)) return std::vector{name};
  std::error_code failed;
  std::vector<std::string> found;
  for (std::filesystem::directory_iterator entry(name, failed), end; !failed && entry != end;
       entry.increment(failed))
    if (entry->path().filename().string().ends_with(suffix)) found.push_back(entry->path());
  if (failed) return unreadable(name, reason_of(failed.value()));
  if (found.empty())
    return unreadable(name, join_parts("it is a directory without any *", suffix, " file"));
  std::ranges::sort(found);
  return found;
}

Result<void> make_directory(const std::string& name) {
  std::error_code failed;
  std::filesystem::create_directories(name, failed);
  if (failed)
    return Error{Code::kUnsuitableEnvironment,
                 join_parts("cannot make the directory `", name, "`: ", reason_of(failed.value())),
                 "name one that can be made or written to"};
  return {};
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

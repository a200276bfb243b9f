#include "cli/text_file.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "lockstep/base/check.h"
#include "lockstep/files/durable.h"

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

Error unwritable(const std::string& name, const std::string& why) {
  return {Code::kUnsuitableEnvironment, join_parts("cannot write `", name, "`: ", why),
          "name a file in a directory that exists and may be written to"};
}

// Where the bytes go: the end of a link; nothing where a name stands for no file of its own, as
// /dev/stdout does.
std::string place_of(const std::string& name) {
  std::error_code none;
  const bool is_own =
      !name.starts_with("/dev/") && !name.starts_with("/proc/") &&
      (!std::filesystem::exists(name, none) || std::filesystem::is_regular_file(name, none));
  if (!is_own) return "";
  return std::filesystem::weakly_canonical(std::filesystem::absolute(name, none), none).string();
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

Result<void> write_text(const std::string& name, const std::string& text) {
  LS_TRY(check_writable(name));
  const std::string place = place_of(name);
  if (place.empty()) {
    errno = 0;
    std::ofstream file(name, std::ios::binary | std::ios::app);
    file << text;
    file.close();
    return file ? Result<void>{} : unwritable(name, reason_of(errno));
  }
  try {
    files::replace_file(files::real_disk(), place, text);
  } catch (const IoError& error) {
    const std::string& told = error.error().message;
    return unwritable(name, told.substr(told.rfind(": ") + 2));  // the reason is its end
  }
  return {};
}

Result<void> check_writable(const std::string& name) {
  if (is_directory(name)) return unwritable(name, "it is a directory");
  if (::access(name.c_str(), W_OK) != 0 && errno != ENOENT)
    return unwritable(name, reason_of(errno));
  const std::string folder = std::filesystem::path(place_of(name)).parent_path().string();
  if (!folder.empty() && ::access(folder.c_str(), W_OK) != 0)
    return unwritable(name, reason_of(errno));
  return {};
}

}  // namespace lockstep::cli

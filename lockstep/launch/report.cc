#include "lockstep/launch/report.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "lockstep/base/check.h"
#include "lockstep/base/text.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kLongestReport = 2048;  // of a line: a pipe takes it whole or not at all

void tell(std::string line) {
  const char* const text = std::getenv(kReports);
  const auto fd = number_in<int>(text == nullptr ? "" : text);
  if (!fd) return;
  for (std::size_t end = 0; (end = line.find('\n')) != std::string::npos;)
    line.replace(end, std::max<std::size_t>(1, line.find_first_not_of(" \n", end) - end), "; ");
  line.resize(std::min(line.size(), kLongestReport - 1));
  line += '\n';
  (void)!::write(*fd, line.data(), line.size());
}

}  // namespace

void report_step(std::int64_t steps) { tell(join_parts("step ", steps)); }

void report_error(const Error& error) {
  tell(join_parts("error ", static_cast<int>(error.code), " ", error.message));
}

void Reports::read(int fd) {
  char bytes[4096];
  ssize_t got = 0;
  while ((got = ::read(fd, bytes, sizeof bytes)) > 0) {
    text_.append(bytes, got);
    for (std::size_t end = 0; (end = text_.find('\n')) != std::string::npos;) {
      take(std::string_view(text_).substr(0, end));
      text_.erase(0, end + 1);
    }
    if (text_.size() > kLongestReport) text_.clear();
  }
  if (got == 0) ended_ = true;
}

void Reports::take(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) return;
  const std::string_view word = line.substr(0, space);
  line.remove_prefix(space + 1);
  if (word == "step") steps_ = std::max(steps_, number_in<std::int64_t>(line).value_or(0));
  const std::size_t end = line.find(' ');
  if (word != "error" || error_ || end == std::string_view::npos) return;
  if (const auto code = parse_code(line.substr(0, end)))
    error_ = Error{*code, std::string(line.substr(end + 1))};
}

}  // namespace lockstep::launch

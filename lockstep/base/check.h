// LS_CHECK(condition, message parts...): states an invariant of ours. Never for user input, which
// is a Result.
#pragma once

#include <sstream>
#include <string>

namespace lockstep {

[[noreturn]] void fail_check(const char* condition, const char* file, int line,
                             const std::string& message);

template <class... Parts>
std::string join_parts(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace lockstep

#define LS_CHECK(condition, ...)                                                     \
  do {                                                                               \
    if (!(condition)) [[unlikely]]                                                   \
      ::lockstep::fail_check(#condition, __FILE__, __LINE__,                         \
                             ::lockstep::join_parts("" __VA_OPT__(, ) __VA_ARGS__)); \
  } while (false)

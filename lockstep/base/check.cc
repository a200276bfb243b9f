#include "lockstep/base/check.h"

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {
thread_local std::string context;
}

void set_check_context(std::string note) { context = std::move(note); }

void fail_check(const char* condition, const char* file, int line, const std::string& message) {
  std::ostringstream out;
  if (!context.empty()) out << context << ": ";
  out << file << ':' << line << ": broken invariant: " << condition;
  if (!message.empty()) out << ": " << message;
  throw BrokenInvariant(out.str());
}

}  // namespace lockstep

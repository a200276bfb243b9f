#include "lockstep/base/check.h"

#include "lockstep/base/error.h"

namespace lockstep {

void fail_check(const char* condition, const char* file, int line, const std::string& message) {
  std::ostringstream out;
  out << file << ':' << line << ": broken invariant: " << condition;
  if (!message.empty()) out << ": " << message;
  throw BrokenInvariant(out.str());
}

}  // namespace lockstep

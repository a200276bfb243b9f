#include "tests/support/golden.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace lockstep::support {
namespace {

std::string line_at(const std::string& text, std::size_t offset) {
  const std::size_t begin = offset == 0 ? 0 : text.rfind('\n', offset - 1) + 1;
  return text.substr(begin, text.find('\n', offset) - begin);
}

}  // namespace

std::string source_dir() { return LOCKSTEP_SOURCE_DIR; }

testing::AssertionResult matches_golden(const std::string& name, const std::string& actual) {
  const std::filesystem::path path = std::filesystem::path(source_dir()) / "tests/golden" / name;
  if (std::getenv("LOCKSTEP_UPDATE_GOLDEN") != nullptr) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << actual;
    return testing::AssertionSuccess();
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return testing::AssertionFailure() << path << " is missing; text was:\n" << actual;
  std::stringstream stream;
  stream << file.rdbuf();
  const std::string expected = stream.str();
  if (expected == actual) return testing::AssertionSuccess();
  std::size_t at = 0;
  while (at < expected.size() && at < actual.size() && expected[at] == actual[at]) ++at;
  return testing::AssertionFailure() << name << " differs\n  expected: " << line_at(expected, at)
                                     << "\n  actual:   " << line_at(actual, at) << "\nfull text:\n"
                                     << actual;
}

}  // namespace lockstep::support

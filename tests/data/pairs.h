// Token files for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "lockstep/data/token_writer.h"

namespace lockstep::data {

using Documents = std::vector<std::vector<std::int64_t>>;

// An empty folder of the running test's own.
inline std::string fresh_folder() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string path =
      testing::TempDir() + "lockstep." + test->test_suite_name() + "." + test->name();
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path + "/";
}

inline std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void put_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline void write_pair(const std::string& prefix, const Documents& documents,
                       TokenType type = TokenType::kU16) {
  TokenWriter writer(files::real_disk(), prefix, type);
  for (const auto& document : documents) ASSERT_TRUE(writer.add(document).ok());
  writer.finish();
}

// Documents of the lengths given, in which every token is a different number.
inline Documents distinct(const std::vector<std::int32_t>& lengths, std::int64_t first = 0) {
  Documents documents;
  for (const std::int32_t length : lengths) {
    documents.emplace_back();
    for (std::int32_t i = 0; i < length; ++i) documents.back().push_back(first++);
  }
  return documents;
}

}  // namespace lockstep::data

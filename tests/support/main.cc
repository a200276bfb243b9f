// main() of every test program: each process has a folder of its own for what it writes, so tests
// that use the same file name can run at the same time (ctest starts a process per test). The
// folder goes with the process.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

int main(int argc, char** argv) {
  std::string folder = std::filesystem::temp_directory_path() / "lockstep-test-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) {
    std::perror(folder.c_str());
    return 1;
  }
  ::setenv("TEST_TMPDIR", (folder + "/").c_str(), 1);  // testing::TempDir()
  ::setenv("TMPDIR", folder.c_str(), 1);  // std::filesystem and programs that are started
  testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return failed;
}

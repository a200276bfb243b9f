#include "tests/hf/tiny.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace lockstep::hf {

std::string fresh_folder(const std::string& name) {
  const std::string folder = testing::TempDir() + "hf-" + name + "-" + std::to_string(::getpid());
  std::filesystem::remove_all(folder);
  return folder;
}

}  // namespace lockstep::hf

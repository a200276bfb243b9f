#include "tests/hf/tiny.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <utility>

namespace lockstep::hf {
namespace {

class HastyFile final : public files::OutputFile {
 public:
  explicit HastyFile(std::unique_ptr<files::OutputFile> file) : file_(std::move(file)) {}
  void write(std::span<const std::byte> bytes) override { file_->write(bytes); }
  void sync() override {}
  void close() override { file_->close(); }

 private:
  std::unique_ptr<files::OutputFile> file_;
};

class HastyDisk final : public files::Disk {
 public:
  std::unique_ptr<files::OutputFile> create(const std::string& path, std::int64_t size) override {
    return std::make_unique<HastyFile>(real_.create(path, size));
  }
  void make_folder(const std::string& path) override { real_.make_folder(path); }
  void rename(const std::string& from, const std::string& to) override { real_.rename(from, to); }
  void sync_folder(const std::string&) override {}
  void remove_file(const std::string& path) override { real_.remove_file(path); }
  bool remove_folder(const std::string& path, const files::OwnNames& is_own) override {
    return real_.remove_folder(path, is_own);
  }
  std::vector<std::string> list(const std::string& path) override { return real_.list(path); }

 private:
  files::Disk& real_ = files::real_disk();
};

}  // namespace

files::Disk& hasty_disk() {
  static HastyDisk disk;
  return disk;
}

std::string fresh_folder(const std::string& name) {
  // Of this process, and gone with it.
  static const struct Scratch {
    std::string path = join_parts(testing::TempDir(), "hf-", ::getpid());
    Scratch() {
      std::filesystem::remove_all(path);
      std::filesystem::create_directory(path);
    }
    ~Scratch() { std::filesystem::remove_all(path); }
  } scratch;
  static int number = 0;
  return join_parts(scratch.path, "/", name, "-", ++number);
}

}  // namespace lockstep::hf

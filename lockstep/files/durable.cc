#include "lockstep/files/durable.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"

namespace lockstep::files {
namespace {

[[noreturn]] void fail(const std::string& what, const std::string& path, int reason = errno) {
  throw IoError({Code::kDiskFailed,
                 "can not " + what + " `" + path + "`: " + std::generic_category().message(reason),
                 ""});
}

class RealFile final : public OutputFile {
 public:
  RealFile(std::string path, int file) : path_(std::move(path)), file_(file) {}
  RealFile(const RealFile&) = delete;
  RealFile& operator=(const RealFile&) = delete;
  ~RealFile() override {
    if (file_ >= 0) ::close(file_);
  }

  // Large aligned pieces go to the device without a copy in the page cache; others through it. The
  // kernel keeps the two in order.
  void write(std::span<const std::byte> bytes) override {
    const std::size_t whole = bytes.size() / kPage * kPage;
    const bool aligned =
        at_ % kPage == 0 && reinterpret_cast<std::uintptr_t>(bytes.data()) % kPage == 0;
    if (aligned && whole >= kLeastDirect && set_direct(true)) {
      write_all(bytes.first(whole));
      bytes = bytes.subspan(whole);
    }
    if (bytes.empty()) return;
    set_direct(false);
    write_all(bytes);
  }

  void sync() override {
    if (::fdatasync(file_) != 0) fail("sync", path_);
  }

  void close() override {
    const int file = std::exchange(file_, -1);
    if (file >= 0 && ::close(file) != 0) fail("close", path_);
  }

 private:
  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t kLeastDirect = std::size_t{1} << 20;

  void write_all(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("write", path_);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
      at_ += static_cast<std::size_t>(written);
    }
  }

  // Whether the file is now as asked; some file systems have no direct writes.
  bool set_direct(bool direct) {
    if (direct == is_direct_) return true;
    const int flags = ::fcntl(file_, F_GETFL);
    if (flags < 0 || ::fcntl(file_, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) != 0)
      return false;
    is_direct_ = direct;
    return true;
  }

  const std::string path_;
  int file_;
  std::size_t at_ = 0;  // bytes written
  bool is_direct_ = false;
};

class RealDisk final : public Disk {
 public:
  std::unique_ptr<OutputFile> create(const std::string& path, std::int64_t size) override {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) fail("create", path);
    auto made = std::make_unique<RealFile>(path, file);
    // posix_fallocate would write zeros where the file system can not do it; then it is left out.
    if (size > 0 && ::fallocate(file, FALLOC_FL_KEEP_SIZE, 0, size) != 0 && errno != EOPNOTSUPP &&
        errno != ENOSYS)
      fail("reserve " + std::to_string(size) + " bytes for", path);
    return made;
  }

  void make_folder(const std::string& path) override {
    if (::mkdir(path.c_str(), 0777) != 0) fail("make folder", path);
  }

  void rename(const std::string& from, const std::string& to) override {
    if (std::rename(from.c_str(), to.c_str()) != 0) fail("rename `" + from + "` to", to);
  }

  void sync_folder(const std::string& path) override {
    const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) fail("open folder", path);
    const int failed = ::fsync(folder) == 0 ? 0 : errno;
    ::close(folder);
    if (failed != 0) fail("sync folder", path, failed);
  }

  void remove(const std::string& path) override {
    if (std::remove(path.c_str()) != 0) fail("remove", path);
  }

  std::vector<std::string> list(const std::string& path) override {
    DIR* const folder = ::opendir(path.c_str());
    if (folder == nullptr && errno == ENOENT) return {};
    if (folder == nullptr) fail("list", path);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(folder)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    const int failed = errno;
    ::closedir(folder);
    if (failed != 0) fail("list", path, failed);
    std::ranges::sort(names);
    return names;
  }
};

bool is_folder(const std::string& path) {
  struct stat status = {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace

Disk& real_disk() {
  static RealDisk disk;
  return disk;
}

void replace_file(Disk& disk, const std::string& path, std::string_view text) {
  const std::string beside = path + ".tmp-" + std::to_string(::getpid());
  const auto file = disk.create(beside, 0);
  file->write(as_byte_span(text));
  file->sync();
  file->close();
  disk.rename(beside, path);
  const auto slash = path.rfind('/');
  disk.sync_folder(slash == std::string::npos ? "."
                                              : path.substr(0, std::max<std::size_t>(slash, 1)));
}

void remove_all(Disk& disk, const std::string& path) {
  for (const std::string& name : disk.list(path)) {
    const std::string inner = path + "/" + name;
    if (is_folder(inner))
      remove_all(disk, inner);
    else
      disk.remove(inner);
  }
  if (is_folder(path)) disk.remove(path);
}

}  // namespace lockstep::files

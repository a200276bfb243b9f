#include "lockstep/files/durable.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>

#include "lockstep/base/hash.h"

namespace lockstep::files {
namespace {

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  throw IoError({Code::kDiskFailed, "cannot " + what + " `" + path + "`: " + system_reason()});
}

// None where there is no such folder, or where O_NOFOLLOW met a link.
Descriptor open_folder(int at, const std::string& name, int flags = 0) {
  return Descriptor(::openat(at, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags));
}

// Names in a folder; nothing when it cannot be listed.
std::optional<std::vector<std::string>> names_in(DIR* folder) {
  if (folder == nullptr) return std::nullopt;
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(folder)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  const int failed = errno;
  ::closedir(folder);
  errno = failed;
  if (failed != 0) return std::nullopt;
  std::ranges::sort(names);
  return names;
}

// Names in a folder of the program's own files alone; nothing when there is anything else.
std::optional<std::vector<std::string>> own_files(int folder, const OwnNames& is_own) {
  Descriptor again = open_folder(folder, ".");
  auto names = again < 0 ? std::nullopt : names_in(::fdopendir(again.release()));
  if (!names) return std::nullopt;
  for (const std::string& name : *names) {
    struct stat status = {};
    if (!is_own(name) || ::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(status.st_mode))
      return std::nullopt;
  }
  return names;
}

// "process 4711 on host-3".
std::string own_name() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return "process " + std::to_string(::getpid()) + " on " + host;
}

std::string owner_in(int fd) {
  char text[300] = {};
  const ssize_t size = ::pread(fd, text, sizeof text - 1, 0);
  const std::string owner(text, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return owner.substr(0, owner.find('\n'));
}

class RealFile final : public OutputFile {
 public:
  RealFile(std::string path, Descriptor file) : path_(std::move(path)), file_(std::move(file)) {}

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
    const int file = file_.release();
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
      bytes = bytes.subspan(written);
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
  Descriptor file_;
  std::size_t at_ = 0;  // bytes written
  bool is_direct_ = false;
};

class RealDisk final : public Disk {
 public:
  std::unique_ptr<OutputFile> create(const std::string& path, std::int64_t size) override {
    Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file < 0) fail("create", path);
    // posix_fallocate would write zeros where the file system cannot do it; then it is left out.
    if (size > 0 && ::fallocate(file, FALLOC_FL_KEEP_SIZE, 0, size) != 0 && errno != EOPNOTSUPP &&
        errno != ENOSYS)
      fail("reserve " + std::to_string(size) + " bytes for", path);
    return std::make_unique<RealFile>(path, std::move(file));
  }

  void make_folder(const std::string& path) override {
    if (::mkdir(path.c_str(), 0777) != 0) fail("make folder", path);
  }

  void rename(const std::string& from, const std::string& to) override {
    if (std::rename(from.c_str(), to.c_str()) != 0) fail("rename `" + from + "` to", to);
  }

  void sync_folder(const std::string& path) override {
    const Descriptor folder = open_folder(AT_FDCWD, path);
    if (folder < 0) fail("open folder", path);
    if (::fsync(folder) != 0) fail("sync folder", path);
  }

  void remove_file(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) fail("remove", path);
  }

  bool remove_folder(const std::string& path, const OwnNames& is_own) override {
    const Descriptor parent = open_folder(AT_FDCWD, parent_of(path));
    const Descriptor folder = open_folder(parent, name_of(path), O_NOFOLLOW);
    const auto names = own_files(folder, is_own);
    if (!names) return false;
    for (const std::string& name : *names)
      if (::unlinkat(folder, name.c_str(), 0) != 0) fail("remove", path + "/" + name);
    if (::unlinkat(parent, name_of(path).c_str(), AT_REMOVEDIR) != 0) fail("remove", path);
    return true;
  }

  std::vector<std::string> list(const std::string& path) override {
    auto names = names_in(::opendir(path.c_str()));
    if (!names && errno == ENOENT) return {};
    if (!names) fail("list", path);
    return *std::move(names);
  }
};

}  // namespace

Disk& real_disk() {
  static RealDisk disk;
  return disk;
}

std::string parent_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, std::max<std::size_t>(slash, 1));
}

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string without_end_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

void replace_file(Disk& disk, const std::string& path, std::string_view text) {
  const std::string beside = path + ".tmp-" + std::to_string(::getpid());
  const auto file = disk.create(beside, 0);
  try {
    file->write(as_byte_span(text));
    file->sync();
    file->close();
    disk.rename(beside, path);
  } catch (const IoError&) {
    disk.remove_file(beside);
    throw;
  }
  disk.sync_folder(parent_of(path));
}

bool holds_only(const std::string& path, const OwnNames& is_own) {
  return own_files(open_folder(AT_FDCWD, path, O_NOFOLLOW), is_own).has_value();
}

Result<FolderLock> FolderLock::take(const std::string& folder) {
  const std::string path = folder + "/.lock";
  const auto fail = [&](const char* what) -> IoError {
    return IoError({Code::kDiskFailed,
                    "cannot " + std::string(what) + " `" + path + "`: " + system_reason(),
                    "runs are kept apart by a lock there (flock)"});
  };
  Descriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (fd < 0) throw fail("open");
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) throw fail("lock");
    const std::string owner = owner_in(fd);
    return Error{Code::kConflict,
                 "`" + folder + "` is in use by " + (owner.empty() ? "another run" : owner),
                 "wait for that run or end it, or save to another folder"};
  }
  const std::string owner = own_name() + "\n";
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, owner.data(), owner.size(), 0) < 0)
    throw fail("write to");
  return FolderLock(std::move(fd));
}

}  // namespace lockstep::files

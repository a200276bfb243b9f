// What a program must ask of a file system so that files outlive a loss of power: bytes are there
// for certain only after sync(), names only after sync_folder() of the folder they are in.
// Everything that must survive is written through this interface, so that a test can record the
// calls and lose any of them that was not synced yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/result.h"

namespace lockstep::files {

// A new file. One thread at a time. Calls throw IoError (LS0820) with path and reason.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  // Appends.
  virtual void write(std::span<const std::byte> bytes) = 0;
  // Until what was written is on the device.
  virtual void sync() = 0;
  // Ends writing, and tells errors that only then show. The destructor closes too, but tells
  // nobody.
  virtual void close() = 0;
};

// Whether a file of that name in a folder is the program's own, and may be removed with the folder.
using OwnNames = std::function<bool(std::string_view name)>;

// A file system; any thread may call. Calls throw IoError (LS0820) with path and reason.
class Disk {
 public:
  virtual ~Disk() = default;

  // Refuses a path that exists. Takes the room for `size` bytes at once where the file system can,
  // so that a full disk is known before the first byte; 0: not known.
  virtual std::unique_ptr<OutputFile> create(const std::string& path, std::int64_t size) = 0;
  virtual void make_folder(const std::string& path) = 0;  // its parent exists, it does not
  // A file takes the place of another; a folder's new name must be free.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  virtual void sync_folder(const std::string& path) = 0;
  virtual void remove_file(const std::string& path) = 0;  // or a link, not what it leads to
  // Removes a folder and the files in it. Returns false, having removed nothing, where `path` is
  // not a folder that holds_only() such files. Works on descriptors: no symbolic link is followed
  // but those on the way to the folder's parent.
  virtual bool remove_folder(const std::string& path, const OwnNames& is_own) = 0;
  // Names in a folder, ascending, without "." and "..". A folder that does not exist has none.
  virtual std::vector<std::string> list(const std::string& path) = 0;
};

// The machine's own.
Disk& real_disk();

// The folder that a path lies in, "." for a plain name; its name there; and a path without slashes
// at its end.
std::string parent_of(const std::string& path);
std::string name_of(const std::string& path);
std::string without_end_slashes(std::string path);

// Writes a small file under a temporary name beside it, synced, and gives it its name: readers see
// the old bytes or the new ones. The name is durable when the folder is synced, which this does
// last.
void replace_file(Disk& disk, const std::string& path, std::string_view text);

// Whether `path` is a folder, and no symbolic link to one, in which every entry is a regular file
// with a name that is_own accepts.
bool holds_only(const std::string& path, const OwnNames& is_own);

// A folder of which one process at a time is the owner. The lock is a descriptor on the file
// `.lock` in it (flock), so that the death of the owner releases it, however it came; the file
// itself stays. Held from take() to destruction. Movable.
class FolderLock {
 public:
  // REQUIRES: the folder exists. LS0106 when another holds it, with its process and host; throws
  // IoError where the file system cannot lock.
  static Result<FolderLock> take(const std::string& folder);

 private:
  explicit FolderLock(Descriptor file) : file_(std::move(file)) {}
  Descriptor file_;
};

// A folder that is removed unless what is being written there comes to its end.
class Unfinished {
 public:
  Unfinished(Disk& disk, std::string folder) : disk_(disk), folder_(std::move(folder)) {}
  Unfinished(Unfinished&&) = delete;
  ~Unfinished() {
    if (folder_.empty()) return;
    try {
      (void)disk_.remove_folder(folder_, [](std::string_view) { return true; });
    } catch (const WorldError&) {  // what went wrong first is being told already
    }
  }
  void finished() { folder_.clear(); }

 private:
  Disk& disk_;
  std::string folder_;
};

}  // namespace lockstep::files

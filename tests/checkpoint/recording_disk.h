// A disk that remembers every call, and the states in which a loss of power may leave it: whatever
// was not synced may be there or not, each call by itself.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/files/durable.h"

namespace lockstep::checkpoint {

struct DiskCall {
  enum class Kind { kCreate, kWrite, kSync, kMakeFolder, kRename, kSyncFolder, kRemove };
  Kind kind;
  std::string path;
  std::string to = {};     // of a rename
  std::string bytes = {};  // of a write
};

// Passes calls on to the machine's disk, but for syncs, which only take time in a test.
class RecordingDisk final : public files::Disk {
 public:
  std::unique_ptr<files::OutputFile> create(const std::string& path, std::int64_t size) override;
  void make_folder(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void sync_folder(const std::string& path) override;
  void remove_file(const std::string& path) override;
  bool remove_folder(const std::string& path, const files::OwnNames& is_own) override;
  std::vector<std::string> list(const std::string& path) override;

  const std::vector<DiskCall>& calls() const { return calls_; }

 private:
  std::vector<DiskCall> calls_;
};

// Which of the first `count` calls may still be lost: bytes until their file is synced, names until
// their folder is.
std::vector<std::size_t> losable(const std::vector<DiskCall>& calls, std::size_t count);

// What is on the disk when of the first `count` calls those in `lost` did not get there. A call
// that builds on a lost one does nothing. Writes below `folder`, which must be in the paths of all
// calls, but under `target` in its place.
void replay(const std::vector<DiskCall>& calls, std::size_t count,
            const std::vector<std::size_t>& lost, const std::string& folder,
            const std::string& target);

}  // namespace lockstep::checkpoint

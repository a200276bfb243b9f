#include "tests/checkpoint/recording_disk.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "lockstep/base/hash.h"

namespace lockstep::checkpoint {
namespace {

using Kind = DiskCall::Kind;
namespace fs = std::filesystem;

class RecordingFile final : public files::OutputFile {
 public:
  RecordingFile(std::unique_ptr<files::OutputFile> real, std::string path,
                std::vector<DiskCall>& calls)
      : real_(std::move(real)), path_(std::move(path)), calls_(calls) {}
  void write(std::span<const std::byte> bytes) override {
    real_->write(bytes);
    calls_.push_back(
        {Kind::kWrite, path_, {}, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
  }
  void sync() override { calls_.push_back({Kind::kSync, path_}); }
  void close() override { real_->close(); }

 private:
  std::unique_ptr<files::OutputFile> real_;
  const std::string path_;
  std::vector<DiskCall>& calls_;
};

std::string parent(const std::string& path) { return path.substr(0, path.rfind('/')); }

// The machine's files, but for names: every file has a number that keeps its bytes apart from them.
struct Tree {
  std::map<std::string, int> names;  // -1: a folder
  std::map<int, std::string> bytes;

  void rename(const std::string& from, const std::string& to) {
    if (!names.contains(from) || !names.contains(parent(to))) return;
    std::map<std::string, int> moved;
    for (auto at = names.begin(); at != names.end();) {
      const bool inside = at->first == from || at->first.starts_with(from + "/");
      if (inside) moved[to + at->first.substr(from.size())] = at->second;
      at = inside ? names.erase(at) : std::next(at);
    }
    for (const auto& [name, file] : moved) names[name] = file;
  }
};

}  // namespace

std::unique_ptr<files::OutputFile> RecordingDisk::create(const std::string& path, std::int64_t) {
  auto real = files::real_disk().create(path, 0);
  calls_.push_back({Kind::kCreate, path});
  return std::make_unique<RecordingFile>(std::move(real), path, calls_);
}
void RecordingDisk::make_folder(const std::string& path) {
  files::real_disk().make_folder(path);
  calls_.push_back({Kind::kMakeFolder, path});
}
void RecordingDisk::rename(const std::string& from, const std::string& to) {
  files::real_disk().rename(from, to);
  calls_.push_back({Kind::kRename, from, to});
}
void RecordingDisk::sync_folder(const std::string& path) {
  calls_.push_back({Kind::kSyncFolder, path});
}
void RecordingDisk::remove_file(const std::string& path) {
  files::real_disk().remove_file(path);
  calls_.push_back({Kind::kRemove, path});
}
bool RecordingDisk::remove_folder(const std::string& path, const files::OwnNames& is_own) {
  const std::vector<std::string> names = list(path);
  if (!files::real_disk().remove_folder(path, is_own)) return false;
  for (const std::string& name : names) calls_.push_back({Kind::kRemove, path + "/" + name});
  calls_.push_back({Kind::kRemove, path});
  return true;
}
std::vector<std::string> RecordingDisk::list(const std::string& path) {
  return files::real_disk().list(path);
}

std::vector<std::size_t> losable(const std::vector<DiskCall>& calls, std::size_t count) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < count; ++i) {
    const DiskCall& call = calls[i];
    if (call.kind == Kind::kSync || call.kind == Kind::kSyncFolder) continue;
    const bool is_safe =
        std::any_of(calls.begin() + static_cast<std::ptrdiff_t>(i),
                    calls.begin() + static_cast<std::ptrdiff_t>(count), [&](const DiskCall& later) {
                      if (call.kind == Kind::kWrite)
                        return later.kind == Kind::kSync && later.path == call.path;
                      return later.kind == Kind::kSyncFolder && later.path == parent(call.path);
                    });
    if (!is_safe) found.push_back(i);
  }
  return found;
}

void replay(const std::vector<DiskCall>& calls, std::size_t count,
            const std::vector<std::size_t>& lost, const std::string& folder,
            const std::string& target) {
  Tree tree;
  tree.names[folder] = -1;
  std::map<std::string, int> writing;  // by the path under which a file was made
  int files = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const DiskCall& call = calls[i];
    const bool is_lost = std::ranges::find(lost, i) != lost.end();
    if (call.kind == Kind::kCreate) writing[call.path] = files++;
    if (is_lost) continue;
    if (call.kind == Kind::kCreate && tree.names.contains(parent(call.path)))
      tree.names[call.path] = writing[call.path];
    if (call.kind == Kind::kMakeFolder && tree.names.contains(parent(call.path)))
      tree.names[call.path] = -1;
    if (call.kind == Kind::kWrite) tree.bytes[writing[call.path]] += call.bytes;
    if (call.kind == Kind::kRename) tree.rename(call.path, call.to);
    if (call.kind == Kind::kRemove) tree.names.erase(call.path);
  }
  fs::remove_all(target);
  for (const auto& [name, file] : tree.names) {  // folders come before what is in them
    const std::string path = target + name.substr(folder.size());
    if (file < 0) {
      fs::create_directories(path);
    } else if (fs::is_directory(fs::path(path).parent_path())) {
      std::ofstream(path, std::ios::binary) << tree.bytes[file];
    }
  }
}

}  // namespace lockstep::checkpoint

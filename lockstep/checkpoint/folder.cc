#include "lockstep/checkpoint/folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/units.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kReplaced = ".replaced-";

bool exists(const std::string& path) {
  struct stat status = {};
  return ::lstat(path.c_str(), &status) == 0;
}

bool is_own_file(std::string_view name) {
  int writer = 0;
  constexpr std::string_view kRank = "rank-";
  if (name == kManifestName) return true;
  if (!name.starts_with(kRank)) return false;
  std::from_chars(name.data() + kRank.size(), name.data() + name.size(), writer);
  return name == file_name(writer);
}

// A folder of begin_save, or one that remove() hid.
bool is_temporary(std::string_view name) {
  const auto mark = name.find(kTemporary);
  if (mark == std::string_view::npos || !step_of(name.substr(0, mark))) return false;
  const std::string_view nonce = name.substr(mark + kTemporary.size());
  return std::ranges::all_of(nonce, [](unsigned char c) { return std::isalnum(c) != 0; });
}

}  // namespace

std::string folder_name(std::int64_t step) {
  return strf("step-%08lld", static_cast<long long>(step));
}

std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  std::int64_t step = 0;
  const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (status != std::errc() || step < 0 || end == name.data()) return std::nullopt;
  const std::string_view rest(end, name.data() + name.size() - end);
  const bool is_plain = rest.empty() || (rest.starts_with(kReplaced) &&
                                         rest.find(kTemporary) == std::string_view::npos);
  if (!is_plain) return std::nullopt;
  return step;
}

std::string file_name(int writer) { return strf("rank-%05d.safetensors", writer); }

void make_folders(files::Disk& disk, const std::string& folder) {
  if (folder.empty() || exists(folder)) return;
  const std::string parent = files::parent_of(files::without_end_slashes(folder));
  if (parent != folder) make_folders(disk, parent);
  disk.make_folder(folder);
}

std::string begin_save(files::Disk& disk, const std::string& folder, std::int64_t step,
                       std::string_view nonce) {
  std::string path = folder + "/" + folder_name(step) + std::string(kTemporary);
  path += nonce;
  disk.make_folder(path);
  return path;
}

std::string publish(files::Disk& disk, const std::string& folder, const std::string& temporary,
                    const Manifest& manifest) {
  const auto names = disk.list(temporary);
  for (const FileRecord& file : manifest.files)
    if (!std::ranges::binary_search(names, file.name))
      throw IoError({Code::kDiskFailed,
                     "`" + file.name + "` was written, but is not in `" + temporary + "`",
                     "all ranks must save to one file system that they share"});
  disk.sync_folder(temporary);
  const auto file = disk.create(temporary + "/" + std::string(kManifestName), 0);
  file->write(as_byte_span(to_text(manifest)));
  file->sync();
  file->close();
  disk.sync_folder(temporary);

  std::string path = folder + "/" + folder_name(manifest.step);
  const std::string nonce = temporary.substr(temporary.rfind(kTemporary) + kTemporary.size());
  const std::string replaced = path + std::string(kReplaced) + nonce;
  const bool replaces = exists(path);
  if (replaces) disk.rename(path, replaced);
  disk.rename(temporary, path);
  disk.sync_folder(folder);
  if (replaces) remove(disk, folder, replaced);
  files::replace_file(disk, folder + "/latest", folder_name(manifest.step) + "\n");
  return path;
}

// Out of sight first, so that a removal that stops half way leaves nothing that looks whole.
void remove(files::Disk& disk, const std::string& folder, const std::string& path) {
  if (!files::holds_only(path, is_own_file)) return;
  const std::string hidden = join_parts(folder, "/", files::name_of(path), kTemporary, "removed");
  if (exists(hidden) && !disk.remove_folder(hidden, is_own_file)) return;
  disk.rename(path, hidden);
  disk.remove_folder(hidden, is_own_file);
}

void retain(files::Disk& disk, const std::string& folder, std::int64_t keep) {
  const auto all = candidates(disk, folder);
  if (keep == 0 || std::cmp_less_equal(all.size(), keep)) return;
  for (std::size_t i = static_cast<std::size_t>(keep); i < all.size(); ++i)
    remove(disk, folder, all[i]);
  disk.sync_folder(folder);
}

void clean(files::Disk& disk, const std::string& folder) {
  for (const std::string& name : disk.list(folder))
    if (is_temporary(name)) disk.remove_folder(folder + "/" + name, is_own_file);
}

void abandon(files::Disk& disk, const std::string& temporary) {
  disk.remove_folder(temporary, is_own_file);
}

std::string set_aside(files::Disk& disk, const std::string& path) {
  std::string to = path + ".damaged";
  for (int number = 2; exists(to); ++number) to = join_parts(path, ".damaged-", number);
  disk.rename(path, to);
  disk.sync_folder(path.substr(0, path.rfind('/')));
  return to;
}

std::vector<std::string> candidates(files::Disk& disk, const std::string& folder) {
  struct stat status = {};
  if (::stat(folder.c_str(), &status) == 0 && !S_ISDIR(status.st_mode)) {
    const std::size_t slash = folder.rfind('/');
    throw IoError({Code::kNoCheckpoint, "`" + folder + "` is a file, and checkpoints are folders",
                   "name a folder step-N or one that holds them: `" +
                       (slash == std::string::npos ? "." : folder.substr(0, slash)) + "`?"});
  }
  std::vector<std::pair<std::int64_t, std::string>> found;
  for (const std::string& name : disk.list(folder))
    if (const auto step = step_of(name)) found.emplace_back(*step, name);
  // Of one step, the plain name first: it is the newer one.
  std::ranges::sort(found, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second.size() < b.second.size();
  });
  std::vector<std::string> paths;
  for (const auto& [step, name] : found) paths.push_back(folder + "/" + name);
  return paths;
}

}  // namespace lockstep::checkpoint

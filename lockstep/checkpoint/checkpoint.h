// A checkpoint on disk, to be read: any slice of any tensor, put together from whatever slices it
// was saved as. Every byte that is used was compared with the digest that was taken before it was
// written.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/result.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/slice.h"
#include "lockstep/files/durable.h"
#include "lockstep/files/safetensors.h"

namespace lockstep::checkpoint {

// One thread at a time. Movable.
class Checkpoint {
 public:
  // Reads the manifest of folder `path` alone, and proves that its slices cover every tensor.
  // Refuses a folder whose name tells another step (LS0822).
  static Result<Checkpoint> open(const std::string& path);

  const Manifest& manifest() const { return manifest_; }
  const std::string& path() const { return path_; }
  std::int64_t file_bytes() const;  // of all files but the manifest

  // Whether every file is there with its size and its header (LS0823). Tensors are not looked at.
  Result<void> check_files();

  // Fills `target` with the elements of `wanted`, as `dtype`: that of the checkpoint or a wider
  // one, which changes no value. Refuses tensors that are not there, of another shape or of a type
  // that would have to be rounded (LS0824), and bytes that do not have their digest (LS0823).
  // REQUIRES: target of wanted.size() elements.
  Result<void> read(const Slice& wanted, DType dtype, std::span<std::byte> target);

  // Everything; `on_bytes` hears how many more bytes were looked at. The first error.
  Result<void> verify(const std::function<void(std::int64_t)>& on_bytes = {});

 private:
  struct OpenFile {
    InputFile input;
    files::Safetensors view;
  };

  Checkpoint(std::string path, Manifest manifest);
  Result<OpenFile*> file(int index);
  Result<void> read_piece(OpenFile& file, const TensorRecord& tensor, const StoredSlice& stored,
                          std::int64_t piece, std::span<std::byte> into) const;
  Result<const files::TensorEntry*> entry_of(OpenFile& file, const TensorRecord& tensor,
                                             const StoredSlice& stored) const;
  Result<void> read_from(const TensorRecord& tensor, const StoredSlice& stored, const Slice& wanted,
                         DType dtype, std::span<std::byte> target);
  Error damaged(const std::string& file, const std::string& what) const;

  std::string path_;
  Manifest manifest_;
  std::map<std::pair<std::string, Role>, std::size_t> by_name_;
  std::map<int, OpenFile> open_;
  std::vector<std::byte> piece_;
};

// Which checkpoint of a folder to go on from: the newest that is whole as far as check_files()
// sees.
struct Choice {
  Checkpoint checkpoint;
  std::vector<Error> skipped;        // why newer ones are not it, newest first
  std::vector<std::string> damaged;  // their paths
};
// `older_than`: leaves out checkpoints of that step and later ones. LS0825 when there is none,
// LS0823 when there are some and none is whole.
Result<Choice> newest(files::Disk& disk, const std::string& folder,
                      std::optional<std::int64_t> older_than = {});

// The checkpoint at `path`, or of a folder the newest, which must be whole: an older one is not
// taken in its place.
Result<Checkpoint> open_at(files::Disk& disk, const std::string& path);

// Whether `path` is a checkpoint and not a folder of them.
bool is_checkpoint(const std::string& path);

}  // namespace lockstep::checkpoint

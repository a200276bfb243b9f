// Writes one file of a checkpoint: its slices are declared first, then their bytes follow. Digests
// are taken of the bytes in memory, so that what goes wrong on the way to the disk shows when they
// are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/hash.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/slice.h"
#include "lockstep/files/durable.h"
#include "lockstep/files/safetensors.h"

namespace lockstep::checkpoint {

struct TypedSlice {
  Slice slice;
  files::ElementType type = files::ElementType::kF32;
  std::int64_t bytes() const { return slice.size() * files::bits_of(type) / 8; }
};

// One thread at a time. Throws IoError.
class FileWriter {
 public:
  // REQUIRES: no two slices with one entry_name; types of whole bytes.
  FileWriter(files::Disk& disk, const std::string& folder, std::string name,
             std::vector<TypedSlice> slices);

  const std::vector<TypedSlice>& order() const { return slices_; }
  // The next bytes, in pieces of any size. REQUIRES: no more than were declared.
  void write(ByteSpan bytes);
  // Syncs. The files and tensors of a manifest that knows this file alone. REQUIRES: all was
  // written.
  Manifest finish();

 private:
  void add_digests(ByteSpan bytes);
  void leave_full_slices();

  std::vector<TypedSlice> slices_;
  std::vector<std::vector<std::uint64_t>> pieces_;  // by slice
  FileRecord record_;
  std::unique_ptr<files::SafetensorsWriter> file_;
  std::size_t current_ = 0;    // slice
  std::int64_t in_slice_ = 0;  // bytes of it that came
  std::optional<Xxh3> open_;   // piece of which only a part came
};

// Memory for a copy of a rank's state.

// Owns the memory, which is touched when it is made: a first touch takes longer than the copy for
// which a step waits.
class Staging {
 public:
  explicit Staging(std::int64_t bytes);
  std::byte* data() const { return data_.get(); }  // null: no bytes

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace lockstep::checkpoint

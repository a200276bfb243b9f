// The safetensors format (github.com/huggingface/safetensors): u64 length of the header,
// little-endian; the header as JSON, padded with spaces; the tensors' bytes, row-major and
// little-endian, without gaps.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/hash.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/base/result.h"
#include "lockstep/files/durable.h"
#include "lockstep/files/elements.h"

namespace lockstep::files {

// The format allows 100 MB of header. No known model comes near a tenth of this, and a header is
// read before anything about its file is known.
inline constexpr std::int64_t kMaxHeaderBytes = std::int64_t{16} << 20;

// Texts by key; the format has nothing else.
using Metadata = std::map<std::string, std::string>;

// What a file says of a tensor.
struct TensorInfo {
  std::string name;
  ElementType type = ElementType::kF32;
  std::vector<std::int64_t> shape;  // empty: a scalar
  bool operator==(const TensorInfo&) const = default;
};

std::string shape_text(std::span<const std::int64_t> shape);  // "[4096, 1024]"

// REQUIRES: a type of whole bytes and a shape whose bytes fit into 63 bits.
std::int64_t bytes_of(const TensorInfo& info);

struct TensorEntry {
  TensorInfo info;
  std::int64_t begin = 0;  // byte of the file
  ByteSpan bytes;          // mapped, at no particular alignment
};

// A file that was read. Any thread may use it.
class Safetensors {
 public:
  // Maps the file and checks all that the format demands (LS0821): a header within the file and
  // within kMaxHeaderBytes, JSON in UTF-8 without doubled keys, known types, sizes that fit types
  // and shapes, and bytes that cover the data exactly once. Tensor bytes are not touched.
  static Result<Safetensors> open(const std::string& path);
  // The same of bytes that are in memory and outlive it; messages call them `name`.
  static Result<Safetensors> parse(ByteSpan file, const std::string& name);

  // As they lie in the file.
  std::span<const TensorEntry> entries() const { return entries_; }
  const TensorEntry* find(std::string_view name) const;  // null: there is none
  const Metadata& metadata() const { return metadata_; }
  std::int64_t data_begin() const { return data_begin_; }  // byte of the file where tensors begin

 private:
  MappedFile file_;
  std::vector<TensorEntry> entries_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  Metadata metadata_;
  std::int64_t data_begin_ = 0;
};

// The file up to the tensors' bytes: their place in the order given. The data begins at a multiple
// of `align` bytes. REQUIRES: a multiple of 8, no name twice, none "__metadata__", whole bytes of
// each.
std::string safetensors_header(std::span<const TensorInfo> tensors, const Metadata& metadata,
                               std::int64_t align);

// Where the data of files starts that we read again, so that device and page boundaries fit.
inline constexpr std::int64_t kPageAlign = 4096;
// What other writers of the format do.
inline constexpr std::int64_t kLeastAlign = 8;

// Writes one file: all tensors are declared first, then their bytes follow in any pieces, in this
// order: wide types first, so that all are aligned, then by name. One thread at a time. Throws
// IoError.
class SafetensorsWriter {
 public:
  SafetensorsWriter(Disk& disk, const std::string& path, std::vector<TensorInfo> tensors,
                    const Metadata& metadata, std::int64_t align);

  const std::vector<TensorInfo>& order() const { return tensors_; }
  std::int64_t file_bytes() const { return file_bytes_; }
  Hash128 header_digest() const { return header_digest_; }  // XXH3 of what lies before the tensors

  // REQUIRES: no more bytes than were declared.
  void write(ByteSpan bytes);
  // Syncs and closes. REQUIRES: all bytes were written.
  void finish();

 private:
  std::vector<TensorInfo> tensors_;
  std::int64_t file_bytes_ = 0;
  Hash128 header_digest_;
  std::int64_t left_ = 0;
  std::unique_ptr<OutputFile> file_;
};

}  // namespace lockstep::files

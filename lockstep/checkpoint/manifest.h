// MANIFEST.json: what a checkpoint holds, where, and the digests of all of it.
// docs/formats/checkpoint.md describes the text. A plain value; any thread may read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/hash.h"
#include "lockstep/base/json.h"
#include "lockstep/base/result.h"
#include "lockstep/checkpoint/slice.h"
#include "lockstep/files/elements.h"

namespace lockstep::checkpoint {

inline constexpr std::string_view kManifestName = "MANIFEST.json";
inline constexpr std::string_view kFormat = "lockstep.checkpoint/1";
// A slice's bytes are hashed in pieces, from its first byte on, so that who needs a part of it need
// not read and hash all of it. One piece fits into a core's cache: it is hashed while it is there.
inline constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;

// Settings and their values as texts, in a fixed order.
using Facts = std::vector<std::pair<std::string, std::string>>;
Hash128 digest_of(const Facts& facts);
Json to_json(const Facts& facts);

struct FileRecord {
  std::string name;  // in the checkpoint's folder
  std::int64_t bytes = 0;
  Hash128 header;  // XXH3 of what lies before the tensors
  bool operator==(const FileRecord&) const = default;
};

struct StoredSlice {
  int file = 0;  // index into Manifest::files
  Box box;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::vector<std::uint64_t> pieces;  // XXH3 of each kPieceBytes
  bool operator==(const StoredSlice&) const = default;
};

// All that files hold of a tensor in one role.
struct TensorRecord {
  std::string name;
  Role role = Role::kWeight;
  files::ElementType type = files::ElementType::kF32;  // of whole bytes
  std::vector<std::int64_t> shape;
  std::vector<StoredSlice> slices;
  bool operator==(const TensorRecord&) const = default;
};

Slice slice_of(const TensorRecord& tensor, const StoredSlice& stored);

struct Manifest {
  std::int64_t step = 0;     // steps done, and so the number of the next one
  std::int64_t updates = 0;  // optimizer updates among them
  std::int64_t samples = 0;  // that the steps took
  std::int64_t tokens = 0;   // valid ones among them
  // The step behind which replicas were compared and agreed; at most `step`. Absent: nobody looked.
  std::optional<std::int64_t> checked = {};
  Facts model;           // model::model_facts: from them the model comes back
  Facts config;          // what else decides what is trained; empty: weights alone, to start from
  std::string data;      // what was trained on
  Facts state;           // further numbers that a run goes on with
  std::string layout;    // it was saved under; loading does not need it
  std::string lockstep;  // versions
  std::string torch;
  std::vector<FileRecord> files;
  std::vector<TensorRecord> tensors;  // no name twice in one role
  bool operator==(const Manifest&) const = default;

  const TensorRecord* find(std::string_view name, Role role) const;  // null: there is none
};

// With its own SHA-256 in front.
std::string to_text(const Manifest& manifest);

// Refuses (LS0822) another format or version, a text that does not have its digest, keys that are
// unknown, doubled or missing, counts that no such run has, file names that leave the folder, boxes
// outside their tensor, ranges outside their box, and digests that do not fit in number. Whether
// tensors are covered is for check_coverage. Messages call the text `path`.
Result<Manifest> parse_manifest(std::string_view text, const std::string& path);

// Joins what writers know of their own files: slices of one tensor come together, in the order of
// `parts`. All else is of the first. Refuses writers that disagree about a tensor's shape or type.
// REQUIRES: at least one part.
Result<Manifest> join(std::vector<Manifest> parts);

// The proof that a checkpoint is whole: every element of every tensor is in exactly one slice.

// Boxes of a tensor must tile it, and ranges of slices with one box must tile that box; more
// general covers are never written. Refuses (LS0822) with the tensor and the first elements that
// are in no slice or in two, and where there is no tensor. Takes time in proportion to slices, and
// to the square of a tensor's boxes.
Result<void> check_coverage(const Manifest& manifest, const std::string& path);

}  // namespace lockstep::checkpoint

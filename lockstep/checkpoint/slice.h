// What one file holds of one tensor: a box of the global tensor, and of that box, in row-major
// order, elements [begin, end). Tensor and expert parallelism cut boxes, ZeRO cuts ranges inside
// them, so the state of any layout is a set of slices, and any other layout finds what it needs by
// intersecting them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/flat_layout.h"

namespace lockstep::checkpoint {

// A weight is stored as wide as it is trained: where there is a master, that is it.
enum class Role : std::uint8_t { kWeight, kFirstMoment, kSecondMoment };
inline constexpr Role kAllRoles[] = {Role::kWeight, Role::kFirstMoment, Role::kSecondMoment};

std::string_view to_text(Role role);  // "first_moment"
std::optional<Role> parse_role(std::string_view text);

// One entry per dim; of a scalar none.
struct Box {
  std::vector<std::int64_t> begin;
  std::vector<std::int64_t> extent;
  std::int64_t volume() const;
  auto operator<=>(const Box&) const = default;
};

Box whole(const std::vector<std::int64_t>& shape);

struct Slice {
  std::string tensor;  // global name: "blocks.3.attn.q.weight"
  Role role = Role::kWeight;
  std::vector<std::int64_t> shape;  // global
  Box box;
  std::int64_t begin = 0;  // elements of the box
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Slice&) const = default;
};

// What it is called in a file: the tensor's name, of a moment followed by ":first_moment".
std::string entry_name(const Slice& slice);

// `length` elements from element `source` of one slice to element `target` of another.
struct Run {
  std::int64_t source = 0;
  std::int64_t target = 0;
  std::int64_t length = 0;
  bool operator==(const Run&) const = default;
};

// Elements that both hold, as runs from one to the other; element 0 of each is its `begin`.
// Ascending in both. Takes time in proportion to the rows of what boxes share inside their ranges.
// REQUIRES: slices of one tensor.
std::vector<Run> common_runs(const Slice& from, const Slice& to);

// Which slices a rank's flat buffer of a segment consists of.
struct UnitSlice {
  Slice slice;
  std::int64_t at = 0;  // element of the buffer where it begins; it lies there without gaps
  // Some other unit or tensor rank holds the same and writes it: a head's copy of the embedding, or
  // what tensor ranks hold alike and this one is not the first of them.
  bool is_copy = false;
};

// Of elements `range` of the buffer of a segment, ascending in `at`; gaps and padding are in none.
// REQUIRES: the segment's layout by flat_layouts(model, place.tp, place.ep, place.etp).
std::vector<UnitSlice> unit_slices(const model::Model& model, int segment,
                                   const model::FlatLayout& layout, model::TensorPlace place,
                                   model::FlatRange range, Role role);

// Every tensor of the model once, whole: what a checkpoint of it holds. Trained ones in the order
// of its units; of weights, then the others.
std::vector<Slice> model_slices(const model::Model& model, Role role);
// Weights that no optimizer updates, which no layout cuts: selection biases, in the order of units.
std::vector<Slice> untrained_slices(const model::Model& model);

}  // namespace lockstep::checkpoint

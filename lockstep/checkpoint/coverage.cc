#include "lockstep/checkpoint/coverage.h"

#include <algorithm>
#include <map>
#include <optional>

#include "lockstep/base/check.h"
#include "lockstep/files/safetensors.h"

namespace lockstep::checkpoint {
namespace {

using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;

std::string box_text(const Box& box) {
  std::vector<std::int64_t> end = box.begin;
  for (std::size_t dim = 0; dim < end.size(); ++dim) end[dim] += box.extent[dim];
  return files::shape_text(box.begin) + " to " + files::shape_text(end);
}

bool meet(const Box& a, const Box& b) {
  for (std::size_t dim = 0; dim < a.begin.size(); ++dim)
    if (a.begin[dim] >= b.begin[dim] + b.extent[dim] ||
        b.begin[dim] >= a.begin[dim] + a.extent[dim])
      return false;
  return true;
}

std::optional<std::string> trouble_in_box(const Box& box, Ranges& ranges) {
  std::ranges::sort(ranges);
  std::int64_t at = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != at)
      return join_parts("elements ", std::min(begin, at), " to ", std::max(begin, at), " of box ",
                        box_text(box), begin > at ? " are in no slice" : " are in two slices");
    at = end;
  }
  if (at == box.volume()) return std::nullopt;
  return join_parts("elements ", at, " to ", box.volume(), " of box ", box_text(box),
                    " are in no slice");
}

// Boxes lie in the tensor (parse_manifest), so disjoint ones of its volume tile it.
std::optional<std::string> trouble_in(const TensorRecord& tensor) {
  std::map<Box, Ranges> boxes;
  for (const StoredSlice& slice : tensor.slices)
    boxes[slice.box].emplace_back(slice.begin, slice.end);
  std::int64_t volume = 0;
  for (auto a = boxes.begin(); a != boxes.end(); ++a) {
    volume += a->first.volume();
    for (auto b = std::next(a); b != boxes.end(); ++b)
      if (meet(a->first, b->first))
        return join_parts("boxes ", box_text(a->first), " and ", box_text(b->first), " overlap");
    if (auto trouble = trouble_in_box(a->first, a->second)) return trouble;
  }
  const std::int64_t all = whole(tensor.shape).volume();
  if (volume == all) return std::nullopt;
  return join_parts("boxes hold ", volume, " of its ", all, " elements");
}

}  // namespace

Result<void> check_coverage(const Manifest& manifest, const std::string& path) {
  if (manifest.tensors.empty())
    return Error{Code::kBadManifest, "`" + path + "`: `tensors` is empty",
                 "use another checkpoint"};
  for (const TensorRecord& tensor : manifest.tensors)
    if (const auto trouble = trouble_in(tensor))
      return Error{Code::kBadManifest,
                   join_parts("`", path, "`: ", to_text(tensor.role), " of tensor `", tensor.name,
                              "`: ", *trouble),
                   "the checkpoint is not whole; use another"};
  return {};
}

}  // namespace lockstep::checkpoint

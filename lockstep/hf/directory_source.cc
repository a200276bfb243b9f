#include "lockstep/hf/directory_source.h"

#include <algorithm>

#include "lockstep/base/check.h"
#include "lockstep/files/elements.h"

namespace lockstep::hf {

DirectorySource::DirectorySource(const Directory& directory) {
  type_ = directory.params.places()[0].type;
  for (const HfParams::Place& place : directory.params.places()) {
    places_[place.name].push_back(&place);
    type_ = files::wider(type_, place.type);
  }
}

Result<void> DirectorySource::read(const std::string& name, const std::vector<std::int64_t>& shape,
                                   std::int64_t first, std::span<std::byte> out) {
  const auto found = places_.find(name);
  LS_CHECK(found != places_.end() && found->second[0]->shape == shape, name);
  const std::size_t width = size_of(type_);
  std::int64_t begin = 0;  // of the place's elements
  for (const HfParams::Place* const place : found->second) {
    const std::int64_t numel = place->piece.numel(), columns = place->piece.columns;
    const std::int64_t from = std::max<std::int64_t>(first - begin, 0);
    const std::int64_t count =
        std::min(numel - from, static_cast<std::int64_t>(out.size() / width));
    begin += numel;
    if (count <= 0) continue;
    LS_CHECK(from % columns == 0 && count % columns == 0, "rows of ", name);
    stored_.resize(static_cast<std::size_t>(count) * size_of(place->type));
    HfParams::read(*place, from / columns, stored_);
    if (const auto at = files::first_not_finite(stored_, place->type))
      return not_finite(place->stored->entry->info.name, place->piece.stored_element(from + *at),
                        place->type);
    files::convert(stored_, place->type, out.first(static_cast<std::size_t>(count) * width), type_);
    out = out.subspan(static_cast<std::size_t>(count) * width);
    first += count;
  }
  LS_CHECK(out.empty(), "elements of ", name);
  return {};
}

}  // namespace lockstep::hf

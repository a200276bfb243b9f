#include "lockstep/data/corpus.h"

namespace lockstep::data {

std::string_view to_text(Split split) {
  constexpr std::string_view kNames[] = {"train", "validation", "test"};
  return kNames[static_cast<std::size_t>(split)];
}

}  // namespace lockstep::data

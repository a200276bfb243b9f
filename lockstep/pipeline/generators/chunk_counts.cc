#include <string>

#include "lockstep/pipeline/generators/generators.h"

namespace lockstep::pipeline {

Result<void> check_one_chunk(std::string_view name, const Shape& shape) {
  if (Result<void> usable = check_shape(shape); !usable.ok()) return usable;
  if (shape.chunks == 1) return {};
  return Error{Code::kOutOfRange,
               "schedule `" + std::string(name) + "` runs one stage per coordinate, chunks = " +
                   std::to_string(shape.chunks) + " asks for more",
               "set chunks = 1, or choose an interleaved schedule"};
}

Result<void> check_two_chunks(std::string_view name, const Shape& shape) {
  if (Result<void> usable = check_shape(shape); !usable.ok()) return usable;
  if (shape.chunks == 2) return {};
  return Error{Code::kOutOfRange,
               "schedule `" + std::string(name) + "` runs two stages per coordinate, chunks = " +
                   std::to_string(shape.chunks) + " asks for another number",
               "set chunks = 2"};
}

}  // namespace lockstep::pipeline

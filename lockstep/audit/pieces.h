// Where pieces of a tensor lie, and how they are put together: every element once, from whichever
// rank has it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/buffer.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/result.h"

namespace lockstep::audit {

using Shape = std::vector<std::int64_t>;

// A box of a tensor, or a range of its elements in row-major order.
struct Region {
  Shape offset, extent;
  std::int64_t begin = -1, end = -1;  // of a range; begin < 0: a box
  bool operator==(const Region&) const = default;
  auto operator<=>(const Region&) const = default;
};
std::int64_t numel(const Shape& shape);  // REQUIRES: it fits into 63 bits
std::int64_t numel(const Region& region);
// Refuses (LS0826) a region that is not inside of the tensor.
Result<void> check_inside(const std::string& tensor, const Shape& shape, const Region& region);
// Elements that lie side by side in the tensor, ascending: the first, how many. REQUIRES: inside.
void for_each_run(const Shape& shape, const Region& region,
                  const std::function<void(std::int64_t first, std::int64_t count)>& visit);
std::string to_text(const Region& region);  // "[0:32, 0:64]"; "elements [0, 2048)"

// What one rank has of a tensor.
struct Piece {
  int rank = 0;
  Region region;
  Shape shape = {};                     // of the whole tensor, as the rank knows it
  std::vector<std::int64_t> copy = {};  // which of several copies; all zeros is the first
  std::int64_t shares = 1;              // ranks whose pieces are still to be added up
  std::string hash = {};                // of its bytes; empty: none was made
  std::optional<ByteSpan> bytes = {};   // absent: only the hash was written
  DType dtype = DType::kF32;
};

struct Owned {
  int rank = 0;
  Region region;
};

// In f64, which holds every value of the types that are read.
struct Tensor {
  std::string name;
  Shape shape;
  std::vector<double> values;
  DType stored = DType::kF32;      // the narrowest that a piece was stored in
  std::vector<Owned> owners = {};  // who wrote what is in it; ascending
};

struct Assembled {
  Tensor tensor;
  std::vector<std::string> differ = {};  // copies of one piece that are not alike, in words
};

// `what` and the name are for messages: "gradient", "model.norm.weight". Refuses (LS0826) pieces
// that overlap without being copies, elements in no piece, shares that are missing, and numbers
// of other types than f64, f32, bf16 and f16.
Result<Assembled> assemble(const std::string& what, const std::string& name, const Shape& shape,
                           const std::vector<Piece>& pieces);

Error bad_dump(std::string message, std::string help = "");

}  // namespace lockstep::audit

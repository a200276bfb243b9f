// Between tensors as Hugging Face stores them and parameters as Lockstep has them: transposed where
// stored [in, out], and cut or joined where several parameters share a tensor.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/result.h"
#include "lockstep/model/hf_names.h"

namespace lockstep::hf {

// One parameter inside a stored tensor.
struct Piece {
  std::int64_t begin = 0;    // its first row among the stored tensor's outputs
  std::int64_t rows = 0;     // outputs
  std::int64_t columns = 1;  // inputs; 1 of a vector
  std::int64_t outputs = 0;  // of the whole stored tensor
  bool transposed = false;
  std::int64_t numel() const { return rows * columns; }
};

// REQUIRES: a dense tensor, not one expert's.
Piece piece_of(const model::HfTensor& tensor, std::size_t index);

// Rows [first, first + out's) of the parameter from the whole stored tensor. Elements keep their type,
// of `width` bytes. REQUIRES: whole rows.
void take_rows(const Piece& piece, ByteSpan stored, std::size_t width, std::int64_t first,
               std::span<std::byte> out);

// Rows [first, ...) of a stored tensor [inputs, outputs] from all of its parameters, each whole.
// REQUIRES: transposed pieces in order that fill the tensor.
void put_transposed(std::span<const Piece> pieces, std::span<const ByteSpan> params,
                    std::size_t width, std::int64_t first, std::span<std::byte> out);

// Refuses (LS0841) elements [first, ...) of a tensor if one is NaN or infinite: no training goes on from it.
Result<void> check_finite(const std::string& tensor, std::int64_t first, ByteSpan elements,
                          DType type);

}  // namespace lockstep::hf

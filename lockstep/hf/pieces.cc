#include "lockstep/hf/pieces.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/check.h"
#include "lockstep/files/elements.h"

namespace lockstep::hf {
namespace {

// Rows and columns of a tile: 32 x 32 elements of both matrices fit into a core's first cache.
constexpr std::int64_t kTransposeTile = 32;

// out[i * out_pitch + j] = in[j * in_pitch + i] for i < rows, j < columns; pitches in elements.
template <std::size_t kWidth>
void transpose(const std::byte* in, std::int64_t in_pitch, std::byte* out, std::int64_t out_pitch,
               std::int64_t rows, std::int64_t columns) {
  const auto move = [&](std::int64_t i, std::int64_t j) {
    std::memcpy(out + static_cast<std::size_t>(i * out_pitch + j) * kWidth,
                in + static_cast<std::size_t>(j * in_pitch + i) * kWidth, kWidth);
  };
  for (std::int64_t top = 0; top < rows; top += kTransposeTile)
    for (std::int64_t left = 0; left < columns; left += kTransposeTile)
      for (std::int64_t i = top; i < std::min(rows, top + kTransposeTile); ++i)
        for (std::int64_t j = left; j < std::min(columns, left + kTransposeTile); ++j) move(i, j);
}

void transpose(std::size_t width, const std::byte* in, std::int64_t in_pitch, std::byte* out,
               std::int64_t out_pitch, std::int64_t rows, std::int64_t columns) {
  if (width == 2) return transpose<2>(in, in_pitch, out, out_pitch, rows, columns);
  if (width == 4) return transpose<4>(in, in_pitch, out, out_pitch, rows, columns);
  LS_CHECK(width == 8, "elements of ", width, " bytes");
  transpose<8>(in, in_pitch, out, out_pitch, rows, columns);
}

}  // namespace

Piece piece_of(const model::HfTensor& tensor, std::size_t index) {
  LS_CHECK(tensor.expert < 0, tensor.name, " belongs to an expert");
  const model::HfPiece& piece = tensor.pieces[index];
  const model::HfPiece& last = tensor.pieces.back();
  return {.begin = piece.begin,
          .rows = piece.rows,
          .columns = piece.param->shape.size() > 1 ? piece.param->shape[1] : 1,
          .outputs = last.begin + last.rows,
          .transposed = tensor.transposed};
}

void take_rows(const Piece& piece, ByteSpan stored, std::size_t width, std::int64_t first,
               std::span<std::byte> out) {
  const std::size_t row = static_cast<std::size_t>(piece.columns) * width;
  const auto rows = static_cast<std::int64_t>(out.size() / row);
  LS_CHECK(out.size() % row == 0 && first >= 0 && first + rows <= piece.rows, "rows [", first,
           ", + ", rows, ") of ", piece.rows);
  LS_CHECK(stored.size() == static_cast<std::size_t>(piece.outputs) * row);
  if (rows == 0) return;
  const auto begin = static_cast<std::size_t>(piece.begin + first);
  if (piece.transposed)
    transpose(width, stored.data() + begin * width, piece.outputs, out.data(), piece.columns, rows,
              piece.columns);
  else
    std::memcpy(out.data(), stored.data() + begin * row, out.size());
}

void put_transposed(std::span<const Piece> pieces, std::span<const ByteSpan> params,
                    std::size_t width, std::int64_t first, std::span<std::byte> out) {
  LS_CHECK(!pieces.empty() && pieces.size() == params.size());
  const std::int64_t outputs = pieces[0].outputs;
  const std::size_t row = static_cast<std::size_t>(outputs) * width;
  const auto rows = static_cast<std::int64_t>(out.size() / row);
  LS_CHECK(out.size() % row == 0 && first >= 0 && first + rows <= pieces[0].columns);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    LS_CHECK(piece.transposed &&
             params[i].size() == static_cast<std::size_t>(piece.numel()) * width);
    transpose(width, params[i].data() + static_cast<std::size_t>(first) * width, piece.columns,
              out.data() + static_cast<std::size_t>(piece.begin) * width, outputs, rows,
              piece.rows);
  }
}

Result<void> check_finite(const std::string& tensor, std::int64_t first, ByteSpan elements,
                          DType type) {
  const auto found = files::first_not_finite(elements, type);
  if (!found) return {};
  return Error{Code::kBadHfWeights,
               join_parts("tensor `", tensor, "`: element ", first + *found, " is not finite in ",
                          to_text(type)),
               "take weights from before they diverged"};
}

}  // namespace lockstep::hf

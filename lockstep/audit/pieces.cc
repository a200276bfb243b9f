#include "lockstep/audit/pieces.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/check.h"
#include "lockstep/files/elements.h"
#include "lockstep/files/safetensors.h"

namespace lockstep::audit {
namespace {

std::vector<double> widened(const Piece& piece) {
  std::vector<double> values(static_cast<std::size_t>(numel(piece.region)));
  files::convert(*piece.bytes, piece.dtype, std::as_writable_bytes(std::span(values)), DType::kF64);
  return values;
}

bool is_number(DType dtype) { return files::widens(dtype, DType::kF64); }

Result<void> check_piece(const std::string& what, const std::string& name, const Shape& shape,
                         const Piece& piece) {
  if (piece.shape != shape)
    return bad_dump(join_parts(what, " `", name, "` is ", files::shape_text(piece.shape),
                               " to rank ", piece.rank, ", and ", files::shape_text(shape),
                               " in the model of its config"));
  LS_TRY(check_inside(name, shape, piece.region));
  if (piece.shares < 1)
    return bad_dump(join_parts(what, " `", name, "`: ", piece.shares, " shares"), "at least 1");
  if (!piece.bytes) return {};
  if (!is_number(piece.dtype))
    return bad_dump(join_parts(what, " `", name, "` is ", to_text(piece.dtype)),
                    "f64, f32, bf16 and f16 are read");
  const auto bytes = static_cast<std::int64_t>(piece.bytes->size());
  const std::int64_t wanted = numel(piece.region) * static_cast<std::int64_t>(size_of(piece.dtype));
  if (bytes != wanted)
    return bad_dump(join_parts(what, " `", name, "`: ", to_text(piece.region), " of rank ",
                               piece.rank, " has ", bytes, " bytes, not ", wanted));
  return {};
}

// What all pieces of one region are together.
class Joined {
 public:
  Joined(const std::string& what, const Shape& shape, Assembled& into)
      : what_(what), shape_(shape), into_(into), times_(into.tensor.values.size()) {}

  Result<void> add(const std::vector<const Piece*>& same) {
    const Piece* first = nullptr;
    for (const Piece* piece : same) {
      if (piece->shares != same.front()->shares) return shares_differ(*piece);
      if (piece->bytes && first == nullptr) first = piece;
    }
    if (first == nullptr) return {};  // its elements are found to be missing
    Tensor& tensor = into_.tensor;
    tensor.owners.push_back({first->rank, first->region});
    if (first->shares > 1) return add_shares(same, *first);
    put(*first);
    for (const Piece* piece : same)
      if (piece != first && differs(*piece, *first))
        into_.differ.push_back(join_parts(what_, " of ", tensor.name, " ", to_text(piece->region),
                                          ": ranks ", first->rank, " and ", piece->rank,
                                          " hold other bits"));
    return {};
  }

  Result<void> finish() const {
    const auto missing = std::ranges::count(times_, 0);
    const auto doubled = std::ranges::count_if(times_, [](int times) { return times > 1; });
    if (missing == 0 && doubled == 0) return {};
    const auto first = std::ranges::find_if(times_, [](int times) { return times != 1; });
    return bad_dump(join_parts(what_, " `", into_.tensor.name, "`: ",
                               missing > 0 ? missing : doubled, " of ", times_.size(), " elements ",
                               missing > 0 ? "are in no piece" : "are in several pieces",
                               ", the first at ", first - times_.begin()),
                    missing > 0 ? "is the dump of every rank there?" : "");
  }

 private:
  Error shares_differ(const Piece& piece) const {
    return bad_dump(join_parts(what_, " `", into_.tensor.name, "`: rank ", piece.rank, " says ",
                               piece.shares, " shares of ", to_text(piece.region),
                               ", and another rank says otherwise"));
  }

  static bool differs(const Piece& piece, const Piece& first) {
    if (!piece.hash.empty() && !first.hash.empty()) return piece.hash != first.hash;
    return piece.bytes && !std::ranges::equal(*piece.bytes, *first.bytes);
  }

  void put(const Piece& piece) {
    const std::vector<double> values = widened(piece);
    const double* from = values.data();
    into_.tensor.stored =
        size_of(piece.dtype) < size_of(into_.tensor.stored) ? piece.dtype : into_.tensor.stored;
    for_each_run(shape_, piece.region, [&](std::int64_t at, std::int64_t count) {
      for (std::int64_t i = at; i < at + count; ++i) {
        into_.tensor.values[i] += *from++;
        if (times_[i] < 2) ++times_[i];
      }
    });
  }

  // Shares of the first copy that is whole; each rank has one.
  Result<void> add_shares(const std::vector<const Piece*>& same, const Piece& first) {
    std::int64_t found = 0;
    for (const Piece* piece : same) {
      if (!piece->bytes || piece->copy != first.copy) continue;
      put(*piece);
      for_each_run(shape_, piece->region, [&](std::int64_t at, std::int64_t count) {
        std::fill_n(times_.begin() + at, count, std::uint8_t{found == 0});
      });
      ++found;
    }
    for_each_run(shape_, first.region, [&](std::int64_t at, std::int64_t count) {
      std::fill_n(times_.begin() + at, count, std::uint8_t{1});
    });
    if (found == first.shares) return {};
    return bad_dump(join_parts(what_, " `", into_.tensor.name, "`: ", found, " of ", first.shares,
                               " shares of ", to_text(first.region), " are there"),
                    "is the dump of every rank there?");
  }

  const std::string& what_;
  const Shape& shape_;
  Assembled& into_;
  std::vector<std::uint8_t> times_;  // that an element was put; 2: more than once
};

}  // namespace

Error bad_dump(std::string message, std::string help) {
  return {Code::kBadAuditDump, std::move(message), std::move(help)};
}

std::int64_t numel(const Shape& shape) {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

std::int64_t numel(const Region& region) {
  return region.begin < 0 ? numel(region.extent) : region.end - region.begin;
}

Result<void> check_inside(const std::string& tensor, const Shape& shape, const Region& region) {
  bool is_inside = region.begin >= 0 ? region.begin <= region.end && region.end <= numel(shape)
                                     : region.offset.size() == shape.size() &&
                                           region.extent.size() == shape.size();
  for (std::size_t dim = 0; is_inside && region.begin < 0 && dim < shape.size(); ++dim)
    is_inside = region.offset[dim] >= 0 && region.extent[dim] >= 0 &&
                region.offset[dim] <= shape[dim] &&
                region.extent[dim] <= shape[dim] - region.offset[dim];
  if (is_inside) return {};
  return bad_dump(join_parts("`", tensor, "`: the piece ", to_text(region), " is not inside of ",
                             files::shape_text(shape)));
}

void for_each_run(const Shape& shape, const Region& region,
                  const std::function<void(std::int64_t first, std::int64_t count)>& visit) {
  if (numel(region) == 0) return;
  if (region.begin >= 0) return visit(region.begin, region.end - region.begin);
  std::size_t inner = shape.size();  // dims from here on are whole
  std::int64_t run = 1;
  while (inner > 0 && region.extent[inner - 1] == shape[inner - 1]) run *= shape[--inner];
  if (inner > 0) run *= region.extent[--inner];
  Shape at(inner, 0);
  while (true) {
    std::int64_t first = 0;
    for (std::size_t dim = 0; dim < shape.size(); ++dim)
      first = first * shape[dim] + region.offset[dim] + (dim < inner ? at[dim] : 0);
    visit(first, run);
    std::size_t dim = inner;
    while (dim > 0 && ++at[dim - 1] == region.extent[dim - 1]) at[--dim] = 0;
    if (dim == 0) return;
  }
}

std::string to_text(const Region& region) {
  if (region.begin >= 0) return join_parts("elements [", region.begin, ", ", region.end, ")");
  std::string text = "[";
  for (std::size_t dim = 0; dim < region.offset.size(); ++dim)
    text += join_parts(dim == 0 ? "" : ", ", region.offset[dim], ":",
                       dim < region.extent.size() ? region.offset[dim] + region.extent[dim] : 0);
  return text + "]";
}

Result<Assembled> assemble(const std::string& what, const std::string& name, const Shape& shape,
                           const std::vector<Piece>& pieces) {
  std::map<Region, std::vector<const Piece*>> by_region;
  std::int64_t held = 0;
  for (const Piece& piece : pieces) {
    LS_TRY(check_piece(what, name, shape, piece));
    if (piece.bytes) held += numel(piece.region);
    by_region[piece.region].push_back(&piece);
  }
  if (held < numel(shape))
    return bad_dump(
        join_parts(what, " `", name, "`: pieces hold ", held, " of ", numel(shape), " elements"),
        "is the dump of every rank there?");
  Assembled made;
  made.tensor = {name, shape, std::vector<double>(static_cast<std::size_t>(numel(shape))),
                 DType::kF64};
  Joined joined(what, shape, made);
  for (const auto& [region, same] : by_region) LS_TRY(joined.add(same));
  LS_TRY(joined.finish());
  return made;
}

}  // namespace lockstep::audit

#include "lockstep/data/token_index.h"

#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::data {
namespace {

static_assert(std::endian::native == std::endian::little);

// Calls `work` with a value of the type that `type` names.
template <class Work>
auto with_type(TokenType type, Work work) {
  switch (type) {
    case TokenType::kU8:  // NOLINT(bugprone-branch-clone): the types of the values differ
      return work(std::uint8_t());
    case TokenType::kI8:
      return work(std::int8_t());
    case TokenType::kI16:
      return work(std::int16_t());
    case TokenType::kU16:
      return work(std::uint16_t());
    case TokenType::kI32:
      return work(std::int32_t());
    case TokenType::kU32:
      return work(std::uint32_t());
    case TokenType::kI64:
      break;
  }
  return work(std::int64_t());
}

struct CodeOfType {
  std::uint8_t code;
  TokenType type;
};
constexpr CodeOfType kCodes[] = {{1, TokenType::kU8},  {2, TokenType::kI8},  {3, TokenType::kI16},
                                 {4, TokenType::kI32}, {5, TokenType::kI64}, {8, TokenType::kU16}};

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr std::size_t kHeader = 34;
constexpr std::size_t kVersionAt = 9, kTypeAt = 17, kPiecesAt = 18, kDocumentsAt = 26;
constexpr std::size_t kPerPiece = 12, kPerBoundary = 8;
// Megatron numbers pieces with 32 signed bits.
constexpr std::uint64_t kMostPieces = std::numeric_limits<std::int32_t>::max();

template <class Number>
Number load(std::span<const std::byte> bytes, std::size_t at) {
  Number number;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

}  // namespace

std::int32_t PieceLengths::operator[](std::int64_t piece) const {
  return load<std::int32_t>(bytes_, kWidth * piece);
}

// Reads one index; what is wrong with it is an Error with the byte where that shows.
class TokenIndex::Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  Result<void> header() {
    if (bytes_.size() < kHeader)
      return wrong(bytes_.size(),
                   join_parts("the file ends; an index has at least ", kHeader, " bytes"));
    if (std::memcmp(bytes_.data(), kMagic.data(), kMagic.size()) != 0)
      return wrong(0, "it does not begin like a Megatron index (MMIDIDX)");
    if (const auto version = load<std::uint64_t>(bytes_, kVersionAt); version != 1)
      return wrong(kVersionAt, join_parts("version ", version, "; only version 1 is known"));
    const auto code = load<std::uint8_t>(bytes_, kTypeAt);
    const auto known = type_of_code(code);
    if (!known)
      return wrong(kTypeAt, join_parts("type ", int{code},
                                       code == 6 || code == 7 ? " is a real, which no token is"
                                                              : " is unknown"));
    made.type_ = *known;
    return counts();
  }

  // Pieces follow each other in PREFIX.bin and fill it.
  Result<void> pieces(std::int64_t bin_bytes) {
    const std::int64_t width = width_of(made.type_);
    std::int64_t next = 0;
    for (std::size_t i = 0; i < num_pieces_; ++i) {
      const std::int32_t length = made.lengths_[static_cast<std::int64_t>(i)];
      const auto offset = load<std::int64_t>(made.offsets_, 8 * i);
      if (length < 0)
        return wrong(kHeader + 4 * i, join_parts("piece ", i, " has ", length, " tokens"));
      if (offset != next)
        return wrong(kHeader + 4 * num_pieces_ + 8 * i,
                     join_parts("piece ", i, " begins at byte ", offset,
                                " of the tokens; the one before ends at ", next));
      next += length * width;
      if (next > bin_bytes)
        return wrong(kHeader + 4 * i, join_parts("piece ", i, " ends at byte ", next,
                                                 " of the tokens, which have ", bin_bytes));
    }
    made.tokens_ = next / width;
    if (next == bin_bytes) return {};
    return wrong(bytes_.size(), join_parts("all pieces together have ", next,
                                           " bytes, but the tokens beside them ", bin_bytes));
  }

  Result<void> documents() {
    const std::size_t from = kHeader + kPerPiece * num_pieces_;
    std::int64_t last = 0;
    for (std::int64_t i = 0; i <= made.documents_; ++i) {
      const std::int64_t piece = made.first_piece(i);
      if (i == 0 && piece != 0)
        return wrong(from, join_parts("the first document begins at piece ", piece, ", not at 0"));
      if (piece < last || piece > made.pieces())
        return wrong(from + kPerBoundary * i,
                     join_parts("document ", i, " begins at piece ", piece, "; it must lie from ",
                                last, " to ", num_pieces_));
      last = piece;
    }
    if (last == made.pieces()) return {};
    return wrong(bytes_.size() - kPerBoundary,
                 join_parts("documents end at piece ", last, " of ", num_pieces_));
  }

  TokenIndex made;

 private:
  Result<void> counts() {
    const auto pieces = load<std::uint64_t>(bytes_, kPiecesAt);
    const auto boundaries = load<std::uint64_t>(bytes_, kDocumentsAt);
    const std::size_t size = bytes_.size(), room = size - kHeader;
    if (pieces > room / kPerPiece)
      return wrong(kPiecesAt,
                   join_parts(pieces, " pieces need more than the ", size, " bytes of the file"));
    if (pieces > kMostPieces)
      return wrong(kPiecesAt, join_parts(pieces, " pieces; at most ", kMostPieces,
                                         " can be numbered: divide the file"));
    const std::size_t left = room - kPerPiece * pieces;
    if (boundaries == 0 || boundaries > left / kPerBoundary)
      return wrong(kDocumentsAt, join_parts(boundaries, " ends of documents do not fit the ", left,
                                            " bytes after the pieces"));
    const std::size_t rest = left - kPerBoundary * boundaries;
    if (rest != 0 && rest == pieces)
      return wrong(size - rest, "pieces have modes: multimodal files are not supported");
    if (rest != 0) return wrong(size - rest, join_parts(rest, " bytes too many at the end"));
    num_pieces_ = pieces;
    made.documents_ = static_cast<std::int64_t>(boundaries) - 1;
    made.lengths_ = PieceLengths(bytes_.subspan(kHeader, 4 * pieces));
    made.offsets_ = bytes_.subspan(kHeader + 4 * pieces, 8 * pieces);
    made.boundaries_ = bytes_.subspan(kHeader + kPerPiece * pieces);
    return {};
  }

  Error wrong(std::size_t at, const std::string& what) const {
    return {Code::kBadTokenFile, join_parts("`", name_, "`, byte ", at, ": ", what),
            "make the file again; `lockstep data verify` checks files"};
  }

  std::span<const std::byte> bytes_;
  const std::string& name_;
  std::size_t num_pieces_ = 0;
};

Result<TokenIndex> TokenIndex::parse(std::span<const std::byte> bytes, const std::string& name,
                                     std::int64_t bin_bytes) {
  Reader reader(bytes, name);
  LS_TRY(reader.header());
  LS_TRY(reader.pieces(bin_bytes));
  LS_TRY(reader.documents());
  return std::move(reader.made);
}

Result<TokenIndex> TokenIndex::open(const std::string& path, std::int64_t bin_bytes) {
  MappedFile file = LS_TRY(MappedFile::open(path));
  Result<TokenIndex> index = parse(file.bytes(), path, bin_bytes);
  if (index.ok()) index->file_ = std::move(file);
  return index;
}

std::int64_t TokenIndex::tokens_before(std::int64_t piece) const {
  if (piece == pieces()) return tokens_;
  return load<std::int64_t>(offsets_, 8 * piece) / width_of(type_);
}

std::int64_t TokenIndex::first_piece(std::int64_t document) const {
  return load<std::int64_t>(boundaries_, kPerBoundary * document);
}

std::int64_t TokenIndex::document_of(std::int64_t piece) const {
  std::int64_t low = 0, high = documents_;  // first_piece(low) <= piece < first_piece(high)
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (first_piece(middle) <= piece ? low : high) = middle;
  }
  return low;
}

std::int64_t width_of(TokenType type) {
  return with_type(type, [](auto token) { return static_cast<std::int64_t>(sizeof token); });
}

std::string_view to_text(TokenType type) {
  constexpr std::string_view kNames[] = {"u8", "i8", "i16", "u16", "i32", "u32", "i64"};
  return kNames[static_cast<std::size_t>(type)];
}

std::optional<std::uint8_t> code_of(TokenType type) {
  for (const CodeOfType& row : kCodes)
    if (row.type == type) return row.code;
  return std::nullopt;
}

std::optional<TokenType> type_of_code(std::uint8_t code) {
  for (const CodeOfType& row : kCodes)
    if (row.code == code) return row.type;
  return std::nullopt;
}

void widen(TokenType type, const std::byte* from, std::span<std::int64_t> to) {
  with_type(type, [&](auto token) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      std::memcpy(&token, from + i * sizeof token, sizeof token);
      to[i] =
          static_cast<std::int64_t>(token);  // NOLINT(bugprone-signed-char-misuse): i8 has a sign
    }
  });
}

bool narrow(TokenType type, std::span<const std::int64_t> from, std::byte* to) {
  return with_type(type, [&](auto token) {
    bool fits = true;
    for (std::size_t i = 0; i < from.size(); ++i) {
      fits &= std::in_range<decltype(token)>(from[i]);
      token = static_cast<decltype(token)>(from[i]);
      std::memcpy(to + i * sizeof token, &token, sizeof token);
    }
    return fits;
  });
}

}  // namespace lockstep::data

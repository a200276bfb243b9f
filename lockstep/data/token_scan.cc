#include "lockstep/data/token_scan.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace lockstep::data {
namespace {

constexpr std::int64_t kBlock = 1 << 16;         // tokens widened at a time
constexpr std::int64_t kBetweenCalls = 1 << 24;  // tokens

// Looks at one document after the other.
class Scanner {
 public:
  Scanner(const TokenFile& file, const ScanWish& wish)
      : file_(file),
        wish_(wish),
        limit_(static_cast<std::uint64_t>(
            wish.vocab > 0 ? wish.vocab : std::numeric_limits<std::int64_t>::max())),
        block_(kBlock) {}

  void document(std::int64_t number, std::int64_t begin, std::int64_t end) {
    std::int64_t last = -1;
    bool is_beyond = false;
    for (std::int64_t at = begin; at < end; at += kBlock) {
      const auto tokens = std::span(block_).first(std::min(kBlock, end - at));
      file_.read_all(at, tokens);
      last = tokens.back();
      is_beyond |= look(number, at - begin, tokens);
    }
    scan.documents_beyond += is_beyond ? 1 : 0;
    if (!wish_.end || last == *wish_.end) return;
    ++scan.documents_unended;
    if (!scan.first_unended) scan.first_unended = number;
  }

  Scan scan;

 private:
  // Whether an id lies outside the vocabulary.
  bool look(std::int64_t number, std::int64_t before, std::span<const std::int64_t> tokens) {
    std::int64_t largest = -1;
    std::uint64_t worst = 0;  // a negative id is the worst of all
    for (const std::int64_t token : tokens) {
      largest = std::max(largest, token);
      worst = std::max(worst, static_cast<std::uint64_t>(token));
    }
    scan.largest = std::max(scan.largest, largest);
    if (worst < limit_) return false;
    if (!scan.first_beyond) {
      const auto found = std::ranges::find_if(
          tokens, [&](std::int64_t token) { return static_cast<std::uint64_t>(token) >= limit_; });
      scan.first_beyond = {number, before + (found - tokens.begin()), *found};
    }
    return true;
  }

  const TokenFile& file_;
  const ScanWish& wish_;
  std::uint64_t limit_;
  std::vector<std::int64_t> block_;
};

}  // namespace

Scan scan(const TokenFile& file, const ScanWish& wish,
          const std::function<void(double share)>& progress) {
  Scanner scanner(file, wish);
  std::int64_t told = 0;
  for (std::int64_t document = 0; document < file.documents(); ++document) {
    const std::int64_t begin = file.tokens_before(file.first_piece(document));
    const std::int64_t end = file.tokens_before(file.first_piece(document + 1));
    scanner.document(document, begin, end);
    if (end - told < kBetweenCalls) continue;
    told = end;
    progress(static_cast<double>(end) / static_cast<double>(file.tokens()));
  }
  return scanner.scan;
}

}  // namespace lockstep::data

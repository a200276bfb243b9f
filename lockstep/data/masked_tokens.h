// Text most of whose labels are ignored, so that a layout that counts wrong shows: ranks and
// microbatches are left without any, and labels stand next to cuts.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "lockstep/base/enum_names.h"
#include "lockstep/data/token_source.h"

namespace lockstep::data {

// Which labels count.
enum class LabelMask : std::uint8_t {
  kSome,     // those of the source
  kOne,      // one of a step: in the middle of its middle sequence
  kSparse,   // the first eighth of every second sequence in the first half of a step
  kCuts,     // the last of each eighth of a sequence: its token comes behind a cut
  kButLast,  // all but a sequence's last
};
inline constexpr EnumNames<LabelMask, 5> kLabelMaskNames = {
    {"some", "one", "sparse", "cuts", "but-last"}};
inline std::string_view to_text(LabelMask mask) { return kLabelMaskNames.name_of(mask); }
inline std::optional<LabelMask> parse_label_mask(std::string_view text) {
  return kLabelMaskNames.find(text);
}

class MaskedTokens final : public TokenSource {
 public:
  // Of steps of `global_batch` samples each.
  MaskedTokens(std::unique_ptr<TokenSource> source, LabelMask mask, std::int64_t global_batch)
      : source_(std::move(source)), mask_(mask), global_batch_(global_batch) {}

  void read(std::int64_t sample, std::span<std::int64_t> tokens,
            std::span<std::int64_t> labels) const override;

 private:
  bool counts(std::int64_t in_step, std::int64_t position, std::int64_t seq) const;

  const std::unique_ptr<TokenSource> source_;
  const LabelMask mask_;
  const std::int64_t global_batch_;
};

}  // namespace lockstep::data

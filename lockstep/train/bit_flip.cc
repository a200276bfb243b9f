#include "lockstep/train/bit_flip.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>

#include "lockstep/base/check.h"
#include "lockstep/base/text.h"

namespace lockstep::train {
namespace {

constexpr std::string_view kHoldings[] = {
    "weight", "own_weight", "master", "first_moment", "second_moment", "gradient", "router_bias"};
constexpr std::string_view kWhens[] = {"before", "norm", "update"};

Error bad(std::string_view text, const std::string& why) {
  return {Code::kBadOptionValue, join_parts("bit flip `", text, "`: ", why),
          "rank=1 step=3 when=before of=first_moment segment=2 element=17 bit=30 is one; `of` is "
          "weight, own_weight, master, first_moment, second_moment, gradient or router_bias, "
          "`when` before, norm or update"};
}

template <class Names>
std::optional<std::size_t> index_in(const Names& names, std::string_view name) {
  const auto found = std::ranges::find(names, name);
  if (found == std::end(names)) return std::nullopt;
  return static_cast<std::size_t>(found - std::begin(names));
}

}  // namespace

Result<BitFlip> parse_bit_flip(std::string_view text) {
  std::map<std::string_view, std::string_view> fields;
  for (const std::string_view word : split(text, ' ')) {
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) return bad(text, "every word is KEY=VALUE");
    if (!fields.emplace(word.substr(0, equals), word.substr(equals + 1)).second)
      return bad(text, join_parts("`", word.substr(0, equals), "` comes twice"));
  }
  const auto number = [&](std::string_view key) -> std::optional<std::int64_t> {
    const auto found = fields.find(key);
    if (found == fields.end()) return std::nullopt;
    const auto value = number_in<std::int64_t>(found->second);
    return value && *value >= 0 ? value : std::nullopt;
  };
  const auto rank = number("rank"), step = number("step"), segment = number("segment"),
             element = number("element"), bit = number("bit");
  const auto holding = index_in(kHoldings, fields["of"]), when = index_in(kWhens, fields["when"]);
  if (!rank || !step || !segment || !element || !bit || !holding || !when || fields.size() != 7)
    return bad(text, "it needs seven fields, numbers from 0 on");
  return BitFlip{Rank{static_cast<int>(*rank)},
                 *step,
                 static_cast<BitFlip::When>(*when),
                 static_cast<Holding>(*holding),
                 static_cast<int>(*segment),
                 *element,
                 static_cast<int>(*bit)};
}

void flip_bit(const runtime::TensorWorkspace& workspace, const BitFlip& flip) {
  const at::Tensor tensor = tensor_of(workspace, flip.segment, flip.holding);
  LS_CHECK(tensor.is_cpu() && tensor.numel() > 0, "no bits to flip");
  const auto width = static_cast<std::int64_t>(tensor.element_size());
  auto* const bytes = static_cast<unsigned char*>(tensor.data_ptr());
  const std::int64_t bit = flip.bit % (8 * width);
  bytes[flip.element % tensor.numel() * width + bit / 8] ^=
      static_cast<unsigned char>(1U << (bit % 8));
}

}  // namespace lockstep::train

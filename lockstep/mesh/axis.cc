#include "lockstep/mesh/axis.h"

#include <algorithm>

#include "lockstep/base/check.h"
#include "lockstep/base/text.h"

namespace lockstep::mesh {
namespace {

constexpr std::array<std::string_view, kNumAxes> kNames = {
    "tp", "cp", "etp", "ep", "pp", "dp_shard", "dp_replicate", "edp_shard", "edp_replicate"};

struct Word {
  std::string_view text;
  AxisSet axes;
};
constexpr std::array<Word, 4> kOrderWords = {Word{"tp", Axis::kTensor}, Word{"cp", Axis::kContext},
                                             Word{"pp", Axis::kPipeline}, Word{"dp", kDp}};

Error bad_order(std::string_view text, const std::string& reason) {
  return {Code::kUnknownChoice, join_parts("order = \"", text, "\" ", reason),
          "an order is a permutation of tp,cp,pp,dp with the fastest axis first; the default is "
          "tp,cp,pp,dp"};
}

}  // namespace

std::string_view to_text(Axis axis) { return kNames.at(static_cast<std::size_t>(axis)); }

std::string to_text(AxisSet axes) {
  if (axes.empty()) return "self";
  if (axes == kWorld) return "world";
  if (axes == kData) return "data";
  std::string text;
  const auto append = [&text](std::string_view word) {
    if (!text.empty()) text += '+';
    text += word;
  };
  for (int i = 0; i < kNumAxes; ++i) {
    const Axis axis = static_cast<Axis>(i);
    if (!axes.has(axis)) continue;
    if (axis == Axis::kDataShard && axes.covers(kDp)) {
      append("dp");
      axes = axes - kDp;
    } else if (axis == Axis::kExpertDataShard && axes.covers(kExpertData)) {
      append("edp");
      axes = axes - kExpertData;
    } else {
      append(to_text(axis));
    }
  }
  return text;
}

Result<Order> Order::parse(std::string_view text) {
  Order order;
  AxisSet seen;
  std::size_t count = 0;
  for (const std::string_view name : split(text, ',')) {
    const auto* const word = std::ranges::find(kOrderWords, name, &Word::text);
    if (word == kOrderWords.end())
      return bad_order(text, "names no axis with \"" + std::string(name) + "\"");
    if (seen.covers(word->axes)) return bad_order(text, "names " + std::string(name) + " twice");
    seen = seen | word->axes;
    for (Axis axis : kDenseView)
      if (word->axes.has(axis)) order.axes_.at(count++) = axis;
  }
  for (const Word& word : kOrderWords)
    if (!seen.covers(word.axes)) return bad_order(text, "does not name " + std::string(word.text));
  return order;
}

std::string to_text(const Order& order) {
  std::string text;
  for (Axis axis : order.axes()) {
    if (axis == Axis::kDataReplicate) continue;
    if (!text.empty()) text += ',';
    text += axis == Axis::kDataShard ? "dp" : to_text(axis);
  }
  return text;
}

}  // namespace lockstep::mesh

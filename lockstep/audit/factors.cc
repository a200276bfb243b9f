#include "lockstep/audit/factors.h"

#include <cmath>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/units.h"

namespace lockstep::audit {
namespace {

std::vector<std::pair<std::string, double>> quantities(const Dump& dump) {
  const auto samples = static_cast<double>(dump.samples.size());
  const double tokens = static_cast<double>(dump.live());
  const double all = samples * static_cast<double>(dump.seq());
  const double micro = dump.microbatches(), data = dump.data_ranks;
  const auto tp = static_cast<double>(dump.degree("tp"));
  std::vector<std::pair<std::string, double>> known = {
      {"the data-parallel degree", data},
      {"the tensor-parallel degree", tp},
      {"the pipeline degree", static_cast<double>(dump.degree("pp"))},
      {"the microbatches of a data rank", micro},
      {"all ranks", dump.ranks},
      {"the microbatches of all data ranks", data * micro},
      {"the samples of the batch", samples},
      {"the labels that count", tokens},
      {"all tokens of the batch", all},
      {"the tokens of a sequence", static_cast<double>(dump.seq())},
      {"all tokens over those that count", all / tokens},
      {"the square of the data-parallel degree", data * data},
      {"data ranks over the labels that count", tokens / data},
      {"microbatches over the labels that count", tokens / micro},
  };
  return known;
}

}  // namespace

std::vector<NamedFactor> names_of(const Dump& dump, double factor, double tolerance) {
  const auto near = [&](double value) { return std::abs(factor / value - 1) <= tolerance; };
  std::vector<NamedFactor> names;
  if (near(-1)) return {{-1, "the sign is turned"}};
  for (const auto& [name, value] : quantities(dump)) {
    if (value == 1) continue;
    const std::string text = value == std::floor(value)
                                 ? join_parts(name, ", ", static_cast<std::int64_t>(value))
                                 : join_parts(name, strf(", %.4g", value));
    if (near(value)) names.push_back({value, text, false});
    if (near(1 / value)) names.push_back({1 / value, text, true});
  }
  return names;
}

std::string in_words(double factor, const std::vector<NamedFactor>& names) {
  std::string text = strf("x %.5g", factor);
  if (names.empty()) return text + ", which no degree or count equals";
  if (names.front().value == -1) return "with the sign turned";
  text +=
      names.front().inverse ? ": divided once too often by " : ": multiplied once too often by ";
  for (std::size_t i = 0; i < names.size(); ++i)
    text += join_parts(i == 0 ? "" : kOrBy, names[i].name);
  return text;
}

}  // namespace lockstep::audit

#include "lockstep/spec/layout.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/enum_names.h"
#include "lockstep/base/text.h"
#include "lockstep/config/suggest.h"
#include "lockstep/pipeline/catalog.h"

namespace lockstep::spec {
namespace {

using model::kDropRows;
using model::kKeepAll;
using model::kSelective;
using model::kWholeBlock;

constexpr std::string_view kSomeBlocks = "full:";
constexpr EnumNames<Period, 2> kPeriods = {{"step", "microbatch"}};

std::string all_rows() {
  std::string rows;
  for (const model::DropRow& row : kDropRows)
    rows += (rows.empty() ? "`" : ", `") + std::string(row.name) + "`";
  return "a layout may recompute `none`, `selective`, `full`, `full:` and how many blocks of each "
         "stage, or rows joined by +: " +
         rows;
}

// Of digits alone.
std::optional<int> whole_number(std::string_view text) {
  const auto value = number_in<int>(text);
  return value && *value >= 0 ? value : std::nullopt;
}

std::string advice_for(std::string_view word) {
  if (word == "block") return "it is called `full`: whole blocks are made again";
  if (word == "cheap")
    return "it is called `selective`: what costs one elementwise pass is made again";
  std::vector<std::string> names = {"none", "selective", "full"};
  for (const model::DropRow& row : kDropRows) names.emplace_back(row.name);
  const std::string advice = config::did_you_mean(word, names);
  return advice.empty() ? all_rows() : advice;
}

// "3x2+1+0"; nothing where `wrong` gets the word that is no count.
std::optional<std::vector<int>> parse_counts(std::string_view text, std::string_view& wrong) {
  constexpr int kMostStages = 1 << 16;
  std::vector<int> counts;
  for (const std::string_view word : split(text, '+')) {
    const std::size_t times = std::min(word.find('x'), word.size());
    const auto count = whole_number(word.substr(0, times));
    const auto stages =
        times == word.size() ? std::optional(1) : whole_number(word.substr(times + 1));
    if (!count || !stages || *stages < 1 || *stages > kMostStages) {
      wrong = word;
      return std::nullopt;
    }
    counts.insert(counts.end(), static_cast<std::size_t>(*stages), *count);
  }
  return counts;
}

// With "full:3x2+1+0" from `at` on, and what the other blocks do.
Result<Recompute> some_blocks(std::string_view text, std::size_t at, model::Drop drop) {
  std::string_view wrong;
  auto blocks = parse_counts(text.substr(at + kSomeBlocks.size()), wrong);
  if (!blocks)
    return Error{Code::kUnknownChoice,
                 join_parts("recompute = \"", text, "\": `", wrong, "` is not a number of blocks"),
                 "write how many of each stage, joined by +, as `full:3x2+1+0`: 3 of two stages, "
                 "then 1 and none"};
  drop.block = true;
  return Recompute{drop, *std::move(blocks)};
}

}  // namespace

Recompute with_blocks(const model::Drop& rest, const std::vector<int>& layers,
                      std::vector<int> blocks) {
  if (blocks == layers && rest == kKeepAll) return {kWholeBlock};
  if (std::ranges::max(blocks) == 0) return {rest};
  Recompute some{rest, std::move(blocks)};
  some.drop.block = true;
  return some;
}

std::string to_text(const model::Drop& drop) {
  if (drop == kKeepAll) return "none";
  if (drop == kSelective) return "selective";
  std::string text = drop.block ? "full" : "";
  for (const model::DropRow& row : kDropRows)
    if (drop.*row.is_dropped) text += (text.empty() ? "" : "+") + std::string(row.name);
  return text;
}

std::string to_text(const Recompute& recompute) {
  if (recompute.blocks.empty()) return to_text(recompute.drop);
  const model::Drop rest = recompute.drop.rest();
  return join_parts(rest == kKeepAll ? "" : to_text(rest) + "+", kSomeBlocks,
                    layers_text(recompute.blocks));
}

Result<Recompute> parse_recompute(std::string_view text) {
  for (const model::Drop& drop : {kKeepAll, kSelective, kWholeBlock})
    if (text == to_text(drop)) return Recompute{drop};
  if (const std::size_t at = text.find(kSomeBlocks); at == 0) {
    return some_blocks(text, at, kKeepAll);
  } else if (at != std::string_view::npos && at > 1 && text[at - 1] == '+') {
    const Result<Recompute> rest = parse_recompute(text.substr(0, at - 1));
    if (!rest.ok()) return rest.error();
    if (!rest->drop.block && rest->drop != kKeepAll) return some_blocks(text, at, rest->drop);
  }
  const auto refuse = [&](std::string why, std::string help) {
    return Error{Code::kUnknownChoice, join_parts("recompute = \"", text, "\" ", why),
                 std::move(help)};
  };
  model::Drop drop;
  for (const std::string_view word : split(text, '+')) {
    const auto row = std::ranges::find(kDropRows, word, &model::DropRow::name);
    if (row == kDropRows.end() && (word == "none" || word == "selective" || word == "full"))
      return refuse(join_parts("joins `", word, "` to something else"),
                    join_parts("write recompute = \"", word, "\" alone, or rows alone"));
    if (row == kDropRows.end())
      return refuse(join_parts("names no row `", word, "`"), advice_for(word));
    if (drop.*row->is_dropped)
      return refuse(join_parts("names `", word, "` twice"), "name each row once");
    drop.*row->is_dropped = true;
  }
  return Recompute{drop};
}

std::string layers_text(const std::vector<int>& layers) {
  std::string text;
  for (std::size_t at = 0; at < layers.size();) {
    std::size_t end = at + 1;
    while (end < layers.size() && layers[end] == layers[at]) ++end;
    text += join_parts(text.empty() ? "" : "+", layers[at]);
    if (end - at > 1) text += join_parts("x", end - at);
    at = end;
  }
  return text;
}

Result<std::vector<int>> parse_layers(std::string_view text) {
  std::string_view wrong;
  auto layers = parse_counts(text, wrong);
  if (layers) return *std::move(layers);
  return Error{Code::kUnknownChoice,
               join_parts("layers = \"", text, "\": `", wrong, "` is not a number of layers"),
               "write the layers of each stage, joined by +, as `9x2+8+6`: 9 on two stages, then 8 "
               "and 6"};
}

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> names = {Layout().schedule};
    for (const pipeline::CatalogRow& row : pipeline::catalog())
      if (row.name != names.front()) names.emplace_back(row.name);
    return names;
  }();
  return all;
}

const std::vector<std::string>& context_names() {
  static const std::vector<std::string> all = model::kCpMethodNames.names();
  return all;
}

Period default_reduce(int zero) { return zero < 2 ? Period::kStep : Period::kMicrobatch; }

std::string_view name_of(Period reduce) { return kPeriods.name_of(reduce); }
std::optional<Period> parse_reduce(std::string_view text) { return kPeriods.find(text); }

std::int64_t num_microbatches(const Layout& layout, const Batch& batch) {
  return batch.global_batch / layout.degrees.dp / batch.microbatch;
}

Batch cut(const Batch& batch, const Layout& layout) {
  if (!layout.microbatches) return batch;
  Batch made = batch;
  made.microbatch = batch.global_batch / layout.degrees.dp / *layout.microbatches;
  LS_CHECK(made.microbatch * layout.degrees.dp * *layout.microbatches == batch.global_batch, "dp ",
           layout.degrees.dp, " x ", *layout.microbatches, " microbatches do not cut ",
           batch.global_batch, " sequences");
  return made;
}

}  // namespace lockstep::spec

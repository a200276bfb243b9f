// The short name of a layout.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/text.h"
#include "lockstep/config/suggest.h"
#include "lockstep/mesh/divisors.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/spec/layout.h"

namespace lockstep::spec {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();

std::optional<std::int64_t> number(std::string_view digits) {
  return digits.starts_with('-') ? std::nullopt : number_in<std::int64_t>(digits);
}

// A word that is a name followed by a number.
struct Counted {
  const char* name;
  std::int64_t min;
  std::int64_t max;
  void (*set)(Layout&, std::int64_t);
};
constexpr std::array kCounted = {
    Counted{"tp", 1, kMax, [](Layout& l, std::int64_t n) { l.degrees.tp = n; }},
    Counted{"cp", 1, kMax, [](Layout& l, std::int64_t n) { l.degrees.cp = n; }},
    Counted{"pp", 1, kMax, [](Layout& l, std::int64_t n) { l.degrees.pp = n; }},
    Counted{"dp", 1, kMax, [](Layout& l, std::int64_t n) { l.degrees.dp = n; }},
    Counted{"ep", 1, kMax, [](Layout& l, std::int64_t n) { l.degrees.ep = n; }},
    Counted{"etp", 1, kMax, [](Layout& l, std::int64_t n) { l.degrees.etp = n; }},
    Counted{"zero", 0, 3, [](Layout& l, std::int64_t n) { l.zero = static_cast<int>(n); }},
    Counted{"vpp", 1, kMax, [](Layout& l, std::int64_t n) { l.chunks = static_cast<int>(n); }},
    Counted{"m", 1, kMax, [](Layout& l, std::int64_t n) { l.microbatches = n; }},
    Counted{"resident=", 1, kMax,
            [](Layout& l, std::int64_t n) { l.resident = static_cast<int>(n); }},
    Counted{"prefetch=", 0, kMax,
            [](Layout& l, std::int64_t n) { l.prefetch = static_cast<int>(n); }},
};

// What words were called before.
using Renamed = std::pair<std::string_view, std::string_view>;
constexpr Renamed kRetired[] = {{"chunks", "vpp"}, {"context=", "cp_comm_type="}};

class Reader {
 public:
  Result<Layout> read(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
      if (text[at] == ' ') {
        ++at;
        continue;
      }
      const std::size_t end = std::min(text.find(' ', at), text.size());
      if (const auto taken = word(text.substr(at, end - at)); !taken.ok()) return taken.error();
      at = end;
    }
    if (seen_.empty())
      return Error{Code::kUnknownChoice, "a layout needs at least one word",
                   "write one such as `pp2 dp2 zero1 1f1b m4`"};
    if (!seen_.contains("reduce")) layout_.reduce = default_reduce(layout_.zero);
    return layout_;
  }

 private:
  Result<void> word(std::string_view text) {
    if (pipeline::find(text).ok()) return layout_.schedule = text, once("schedule", text);
    if (text == "step" || text == "mb") {
      layout_.reduce = text == "mb" ? Period::kMicrobatch : Period::kStep;
      return once("reduce", text);
    }
    if (text == "nosp") return layout_.sp = false, once("sp", text);
    if (const std::size_t is = text.find('='); is != std::string_view::npos) {
      const std::string_view value = text.substr(is + 1);
      if (text.starts_with("cp_comm_type="))
        return set("cp_comm_type", text, context(value), layout_.context);
      if (text.starts_with("recompute="))
        return set("recompute", text, parse_recompute(value), layout_.recompute);
      if (text.starts_with("order="))
        return set("order", text, mesh::Order::parse(value), layout_.order);
      if (text.starts_with("layers="))
        return set("layers", text, parse_layers(value), layout_.layers);
    }
    if (text.starts_with("dp") && text.find('x') != std::string_view::npos) return hybrid(text);
    const std::size_t digit = std::min(text.find_first_of("0123456789"), text.size());
    const auto row = std::ranges::find(kCounted, text.substr(0, digit), &Counted::name);
    const auto value = digit < text.size() ? number(text.substr(digit)) : std::nullopt;
    if (row == kCounted.end() || !value) return unknown(text);
    if (*value < row->min || *value > row->max)
      return Error{
          Code::kOutOfRange, join_parts("`", text, "` in a layout: ", *value, " is out of range"),
          join_parts("the nearest: `", row->name, std::clamp(*value, row->min, row->max), "`")};
    row->set(layout_, *value);
    return once(row->name, text);
  }

  Result<void> once(const std::string& setting, std::string_view text) {
    if (const auto [at, is_new] = seen_.emplace(setting, text); !is_new)
      return Error{Code::kConflict,
                   join_parts("a layout names both `", at->second, "` and `", text, "`"),
                   "keep one of the two"};
    return {};
  }

  template <class T>
  Result<void> set(const char* setting, std::string_view text, const Result<T>& parsed, T& member) {
    if (!parsed.ok()) return parsed.error();
    member = *parsed;
    return once(setting, text);
  }

  static Result<model::CpMethod> context(std::string_view value) {
    if (const auto parsed = model::parse_cp_method(value)) return *parsed;
    const std::string near = config::did_you_mean(value, context_names());
    return Error{Code::kUnknownChoice,
                 join_parts("cp_comm_type = \"", value, "\" is no way of context parallelism"),
                 near.empty() ? config::there_are(context_names()) : near};
  }

  // "dp2x4": 2 replicas of 4 shards.
  Result<void> hybrid(std::string_view text) {
    const std::size_t times = text.find('x');
    const auto replicas = times > 2 ? number(text.substr(2, times - 2)) : std::nullopt;
    const auto shards = times + 1 < text.size() ? number(text.substr(times + 1)) : std::nullopt;
    if (!replicas || !shards) return unknown(text);
    const std::int64_t copies = *replicas, pieces = *shards;
    const auto product =
        copies > 0 && pieces > 0 ? mesh::checked_product(copies, pieces) : std::nullopt;
    if (!product || *product > kMax)
      return Error{Code::kOutOfRange,
                   join_parts("`", text, "` in a layout: replicas x shards is out of range"),
                   "the nearest: `dp1x1`"};
    layout_.degrees.dp = *product;
    layout_.degrees.dp_shard = shards;
    return once("dp", text);
  }

  // Suggests words with the same number, so that `pp=2` finds `pp2`.
  static Error unknown(std::string_view text) {
    std::string digits;
    for (const char c : text)
      if (c >= '0' && c <= '9') digits += c;
    for (const auto& [retired, name] : kRetired)
      if (text.starts_with(retired))
        return {Code::kUnknownChoice, join_parts("a layout has no word `", text, "`"),
                join_parts("here it is called `", name, text.substr(retired.size()), "`")};
    std::vector<std::string> names;
    for (const Counted& row : kCounted) names.push_back(row.name + (digits.empty() ? "1" : digits));
    for (const char* name :
         {"step", "mb", "nosp", "cp_comm_type=gather", "recompute=selective", "recompute=full"})
      names.emplace_back(name);
    names.insert(names.end(), schedule_names().begin(), schedule_names().end());
    const std::vector<std::string> near = config::nearest(text, names, 1);
    return {Code::kUnknownChoice, join_parts("a layout has no word `", text, "`"),
            near.empty() ? "a layout is written like `pp2 dp2x2 zero3 1f1b m4 recompute=selective`"
                         : join_parts("did you mean `", near[0], "`?")};
  }

  Layout layout_;
  std::map<std::string, std::string, std::less<>> seen_;  // setting: the word that set it
};

}  // namespace

std::string to_text(const Layout& layout) {
  const mesh::Degrees& d = layout.degrees;
  std::string text;
  const auto add = [&](const auto&... parts) {
    text += (text.empty() ? "" : " ") + join_parts(parts...);
  };
  const auto degree = [&](const char* name, std::int64_t value) {
    if (value != 1) add(name, value);
  };
  degree("tp", d.tp);
  degree("cp", d.cp);
  degree("pp", d.pp);
  if (d.dp_shard && *d.dp_shard > 0 && d.dp % *d.dp_shard == 0)
    add("dp", d.dp / *d.dp_shard, "x", *d.dp_shard);
  else if (d.dp_shard)
    add("dp", d.dp, "/", *d.dp_shard);
  else
    add("dp", d.dp);
  degree("ep", d.ep);
  degree("etp", d.etp);
  if (!layout.sp) add("nosp");
  add("zero", layout.zero);
  const Layout plain;
  if (d.pp > 1 || layout.schedule != plain.schedule) add(layout.schedule);
  degree("vpp", layout.chunks);
  if (layout.microbatches) add("m", *layout.microbatches);
  if (layout.reduce != default_reduce(layout.zero))
    add(layout.reduce == Period::kStep ? "step" : "mb");
  if (d.cp > 1 || layout.context != plain.context) add("cp_comm_type=", to_text(layout.context));
  if (layout.recompute != plain.recompute) add("recompute=", to_text(layout.recompute));
  if (layout.resident) add("resident=", *layout.resident);
  if (layout.prefetch) add("prefetch=", *layout.prefetch);
  if (!layout.layers.empty()) add("layers=", layers_text(layout.layers));
  if (layout.order != plain.order) add("order=", to_text(layout.order));
  return text;
}

Result<Layout> parse_layout(std::string_view text) { return Reader().read(text); }

}  // namespace lockstep::spec

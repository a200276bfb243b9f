#include "cli/plan/page.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>
#include <vector>

#include "cli/plan/page_style.h"
#include "cli/plan/page_template.h"
#include "cli/plan/report.h"
#include "cli/table.h"
#include "lockstep/base/check.h"
#include "lockstep/base/text.h"
#include "lockstep/draw/figure.h"
#include "lockstep/draw/svg_text.h"

namespace lockstep::cli {
namespace {

using draw::xml_escaped;

// Three digits, also where the last are zeros: columns line up.
std::string three(double value) {
  std::string text = strf("%#.3g", value);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string seconds(double value) {
  const double size = std::abs(value);
  if (size == 0 || size >= 119.5) return to_text(Seconds{value});
  return size >= 0.9995      ? three(value) + " s"
         : size >= 0.9995e-3 ? three(1e3 * value) + " ms"
                             : three(1e6 * value) + " us";
}
std::string scaled(double value) {
  constexpr const char* kPrefixes[] = {"", " k", " M", " G", " T", " P"};
  std::size_t step = 0;
  for (; value >= 999.5 && step + 1 < std::size(kPrefixes); ++step) value /= 1000;
  return three(value) + kPrefixes[step];
}
std::string memory_of(double bytes) { return bytes == 0 ? "0" : gibibytes(bytes); }
std::string percent(double share) { return strf("%.1f %%", 100 * share); }
std::string percents(double value) { return strf("%.1f %%", value); }
std::string whole(double value) { return with_commas(std::llround(value)); }
std::string plain(double value) { return strf("%.4g", value); }
std::string days(double value) { return value < 999.5 ? three(value) : whole(value); }
std::string bandwidth(double value) { return scaled(value) + "B/s"; }
std::string flops(double value) { return scaled(value) + "FLOP/s"; }

constexpr std::pair<std::string_view, std::string (*)(double)> kForms[] = {
    {"seconds", seconds},       {"scaled", scaled}, {"memory", memory_of},   {"percent", percent},
    {"percents", percents},     {"whole", whole},   {"plain", plain},        {"days", days},
    {"signed", signed_percent}, {"flops", flops},   {"bandwidth", bandwidth}};

// The first two words of a text.
std::pair<std::string, std::string> words_of(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::pair<std::string, std::string> words;
  in >> words.first >> words.second;
  return words;
}

std::string bar(const std::string& kind, double share, std::string_view title) {
  return strf("<i class=\"%s\" style=\"width:%.2f%%\" title=\"", kind.c_str(), 100 * share) +
         std::string(title) + "\"></i>";
}

class PlanPage {
 public:
  PlanPage(const Json& plan, const std::string& timeline) : plan_(plan), timeline_(timeline) {}

  std::string html() const { return filled(kPageTemplate); }

 private:
  using Group = std::pair<std::size_t, std::size_t>;  // the first and the last of a list

  const Json* find(const std::string& path) const {
    const Json* found = &plan_;
    for (const std::string_view part : split(path, '.')) {
      const std::size_t index = found->is_array() ? *number_in<std::size_t>(part) : 0;
      if (!found->is_array())
        found = found->find(part);
      else
        found = index < found->items().size() ? &found->items()[index] : nullptr;
      if (found == nullptr || found->is_null()) return nullptr;
    }
    return found;
  }
  const Json& at(const std::string& path) const {
    const Json* found = find(path);
    LS_CHECK(found != nullptr, "the answer has no ", path);
    return *found;
  }
  double real(const std::string& path) const { return at(path).as_real(); }
  std::size_t count(const std::string& path) const { return at(path).items().size(); }

  // As page_template.h says.
  std::string filled(std::string_view words) const {
    std::string out;
    for (std::size_t open; (open = words.find('{')) != words.npos;) {
      out += words.substr(0, open);
      const std::size_t close = words.find('}', open);
      const std::string_view tag = words.substr(open + 1, close - open - 1);
      words.remove_prefix(close + 1);
      if (tag[0] == '?')
        out += filled(branch(words, is_true(std::string(tag.substr(1)))));
      else
        out += made(tag);
    }
    return out += words;
  }

  bool is_true(const std::string& path) const {
    const Json* found = find(path);
    return found != nullptr && (!found->is_bool() || found->as_bool());
  }

  // One side of a question, of which all is taken from the words.
  static std::string_view branch(std::string_view& words, bool is_first) {
    std::size_t at = 0, middle = words.npos;
    for (int depth = 1; depth > 0; ++at) {
      at = words.find('{', at);
      depth += words[at + 1] == '?' ? 1 : words[at + 1] == '/' ? -1 : 0;
      if (depth == 1 && words[at + 1] == ':') middle = at;
    }
    const std::string_view all = words.substr(0, at - 1);
    words.remove_prefix(all.size() + 3);
    if (middle == words.npos) return is_first ? all : "";
    return is_first ? all.substr(0, middle) : all.substr(middle + 3);
  }

  std::string made(std::string_view tag) const {
    if (tag[0] == '#') return listing(tag.substr(1));
    if (tag == "!style") return std::string(kPageStyle);
    if (tag == "!warnings") return warnings();
    if (tag == "!step") return step();
    if (tag == "!memory") return memory();
    if (tag == "!timeline") return timeline_;
    if (tag == "!range") return range();
    const auto [path, form] = words_of(tag);
    return cell(path, form.empty() ? "span" : form);
  }

  // A number in a form, with its origin where that is not the vendor; or a text in an element.
  std::string cell(const std::string& path, const std::string& form) const {
    const auto known = std::ranges::find(kForms, form, [](const auto& row) { return row.first; });
    const bool is_number = known != std::end(kForms);
    const Json* value = find(path);
    if (value == nullptr) return is_number ? "-" : "";
    if (value->is_bool()) return value->as_bool() ? "yes" : "no";
    if (value->is_object())
      return cell(path + ".value", form) +
             (at(path + ".origin").as_text() == "published"
                  ? ""
                  : " <small>" + cell(path + ".origin", "span") + "</small>");
    if (!is_number && form == "raw") return xml_escaped(value->as_text());
    const std::string where = join_parts("data-json=\"", path, "\">");
    if (is_number)
      return join_parts("<data value=\"", value->dump(), "\" ", where,
                        known->second(value->as_real()), "</data>");
    return join_parts("<", form, " ", where, xml_escaped(value->as_text()), "</", form, ">");
  }

  // Items that share a row or a bar: pipeline ranks beside each other that hold the same, no more
  // than a page has room for, with the fullest. Elsewhere each has its own.
  std::vector<Group> groups(const std::string& list) const {
    const Json::Array& items = at(list).items();
    const bool are_ranks = list == "plans.0.stages";
    const auto same = [](Json a, Json b) {
      return a.set("pipeline_rank", 0) == b.set("pipeline_rank", 0);
    };
    std::vector<Group> all, chosen;
    for (std::size_t i = 0; i < items.size(); ++i)
      if (are_ranks && i > 0 && same(items[i - 1], items[i]))
        all.back().second = i;
      else
        all.emplace_back(i, i);
    if (!are_ranks) return all;
    const auto fullest = static_cast<std::size_t>(at("plans.0.memory.pipeline_rank").as_int());
    const std::vector<std::size_t> shown = draw::shown(all.size(), 16);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (std::ranges::find(shown, i) != shown.end() ||
          (all[i].first <= fullest && fullest <= all[i].second))
        chosen.push_back(all[i]);
    return chosen;
  }

  static std::string path_in(const std::string& list, std::size_t i, const std::string& path) {
    const std::size_t star = path.find('*');
    return star == path.npos ? join_parts(list, ".", i, ".", path)
                             : join_parts(path.substr(0, star), i, path.substr(star + 1));
  }
  std::string cell(const std::string& list, const Group& group, const std::string& path,
                   const std::string& form) const {
    const std::string first = cell(path_in(list, group.first, path), form);
    if (path != "pipeline_rank" || group.first == group.second) return first;
    return first + " to " + cell(path_in(list, group.second, path), form);
  }

  std::string listing(std::string_view tag) const {
    const std::size_t bar = tag.find('|');
    const auto [list, name] = words_of(tag.substr(0, bar));
    const std::vector<Group> items = groups(list);
    std::string head, body;
    std::vector<std::string> rows(items.size());
    for (const std::string_view column : split(tag.substr(bar + 1), '|')) {
      const std::size_t is = column.find('=');
      std::string title(column.substr(1, is - 1));
      auto [path, form] = words_of(column.substr(is + 1));
      const std::string side = form.empty() ? "" : " class=\"n\"";
      if (form.empty()) form = path.ends_with("name") || path == "winner" ? "code" : "span";
      if (title.starts_with('?') && find(path_in(list, 0, path)) == nullptr) continue;
      if (title.starts_with('?')) title.erase(0, 1);
      head += join_parts("<th", side, ">", title, "</th>");
      for (std::size_t i = 0; i < items.size(); ++i)
        rows[i] += join_parts("<td", side, " data-label=\"", title, "\"><span>",
                              cell(list, items[i], path, form), "</span></td>");
    }
    for (const std::string& row : rows) body += join_parts("<tr>", row, "</tr>\n");
    return join_parts("<table class=\"", name, "\"><thead><tr>", head, "</tr></thead>\n<tbody>",
                      body, "</tbody></table>\n");
  }

  std::string warnings() const {
    std::string notes;
    for (std::size_t i = 0; i < count("warnings"); ++i)
      notes += filled(join_parts("<li>{warnings.", i, "}</li>"));
    return notes.empty() ? "" : join_parts("<ul class=\"notes\">", notes, "</ul>");
  }

  std::string step() const {
    std::string all, bars;
    for (std::size_t i = 0; i < count("report.terms"); ++i) {
      const std::string term = join_parts("report.terms.", i);
      const double share = real(term + ".share");
      if (share < 0.0005) continue;
      const std::string& name = at(term + ".name").as_text();
      const std::string part = bar(name, share, name);
      all += part;
      bars += filled(join_parts("<div class=\"bar\"><span>{", term, ".name b} <small>{", term,
                                ".what}</small></span><span class=\"track\">", part, "</span>{",
                                term, ".seconds seconds}{", term, ".share percent}</div>\n"));
    }
    return join_parts("<div class=\"track whole\">", all, "</div>\n<div class=\"bars\">", bars,
                      "</div>\n");
  }

  // Of a device that has or needs so much.
  std::string memory_bar(const std::string& stage, double all) const {
    std::string parts;
    int kind = 0;
    for (const char* part :
         {"weights", "gradients", "optimizer", "activations", "logits", "transients"})
      parts += bar(strf("m%d", kind++), real(stage + part) / all, part);
    parts += bar(strf("m%d", kind),
                 (real(stage + "device_bytes") - real(stage + "allocated_bytes")) / all,
                 "reserve and context");
    return parts + strf("<b style=\"left:%.2f%%\"></b><b class=\"end\" style=\"left:%.2f%%\"></b>",
                        100 * real("report.usable_bytes") / all,
                        100 * real("plans.0.memory.device_has_bytes") / all);
  }

  std::string memory() const {
    const std::string list = "plans.0.stages";
    const double all =
        std::max(real("plans.0.memory.device_has_bytes"), real("plans.0.memory.device_bytes"));
    std::string bars;
    for (const Group& group : groups(list))
      bars += join_parts(
          "<div class=\"bar mem\"><span>rank ", cell(list, group, "pipeline_rank", "whole"),
          "</span><span class=\"track\">", memory_bar(path_in(list, group.first, ""), all),
          "</span>", cell(list, group, "device_bytes", "memory"), "</div>\n");
    return bars;
  }

  // Where runs may lie, on a scale of seconds: the ends of both bands, and three lines.
  std::string range() const {
    const auto path = [](std::size_t i) { return join_parts("report.quantiles.", i, ".step_s"); };
    double low = real(path(0)), high = 0;
    for (std::size_t i = 0; i < count("report.quantiles"); ++i)
      low = std::min(low, real(path(i))), high = std::max(high, real(path(i)));
    const double from = 0.85 * low, across = 1.08 * high - from;
    const auto mark = [&](const char* open, std::size_t first, std::size_t last) {
      return strf("<%s style=\"left:%.2f%%;width:%.2f%%\">", open,
                  100 * (real(path(first)) - from) / across,
                  100 * (real(path(last)) - real(path(first))) / across);
    };
    std::string out = mark("i class=\"most\"", 0, 6) + "</i>" + mark("i class=\"half\"", 1, 4) +
                      "</i>" + mark("b class=\"\"", 2, 2) + "</b>" + mark("b class=\"now\"", 3, 3) +
                      "</b>" + mark("b class=\"\"", 5, 5) + "</b>";
    for (const std::size_t i : {0, 1, 4, 6})
      out += mark("span", i, i) + cell(path(i), "seconds") + "</span>";
    for (const auto& [i, words] :
         {std::pair<std::size_t, const char*>{3, "predicted "}, {5, "P95 "}})
      out += mark("span class=\"above\"", i, i) + words + cell(path(i), "seconds") + "</span>";
    return join_parts("<div class=\"range\">", out, "</div>\n");
  }

  const Json& plan_;
  const std::string& timeline_;
};

}  // namespace

std::string plan_page(const Json& plan, const std::string& timeline) {
  return PlanPage(plan, timeline).html();
}

}  // namespace lockstep::cli

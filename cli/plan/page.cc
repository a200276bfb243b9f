#include "cli/plan/page.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cli/page.h"
#include "cli/plan/page_template.h"
#include "lockstep/base/check.h"
#include "lockstep/base/units.h"
#include "lockstep/draw/figure.h"

namespace lockstep::cli {
namespace {

std::string bar(const std::string& kind, double share, std::string_view title) {
  return strf("<i class=\"%s\" style=\"width:%.2f%%\" title=\"", kind.c_str(), 100 * share) +
         std::string(title) + "\"></i>";
}

class PlanPage final : public HtmlPage {
 public:
  PlanPage(const Json& plan, const std::string& timeline) : HtmlPage(plan), timeline_(timeline) {}

 private:
  std::string drawn(std::string_view part) const override {
    if (part == "warnings") return warnings();
    if (part == "step") return step();
    if (part == "memory") return memory();
    if (part == "range") return range();
    LS_CHECK(part == "timeline", part);
    return timeline_;
  }

  // Pipeline ranks beside each other that hold the same share one, and there are no more than a
  // page has room for, with the fullest.
  std::vector<Group> groups(const std::string& list) const override {
    if (list != "plans.0.stages") return HtmlPage::groups(list);
    const Json::Array& items = at(list).items();
    const auto same = [](Json a, Json b) {
      return a.set("pipeline_rank", 0) == b.set("pipeline_rank", 0);
    };
    std::vector<Group> all, chosen;
    for (std::size_t i = 0; i < items.size(); ++i)
      if (i > 0 && same(items[i - 1], items[i]))
        all.back().second = i;
      else
        all.emplace_back(i, i);
    const auto fullest = static_cast<std::size_t>(at("plans.0.memory.pipeline_rank").as_int());
    const std::vector<std::size_t> shown = draw::shown(all.size(), 16);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (std::ranges::find(shown, i) != shown.end() ||
          (all[i].first <= fullest && fullest <= all[i].second))
        chosen.push_back(all[i]);
    return chosen;
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

  const std::string& timeline_;
};

}  // namespace

std::string plan_page(const Json& plan, const std::string& timeline) {
  return PlanPage(plan, timeline).filled(kPageTemplate);
}

}  // namespace lockstep::cli

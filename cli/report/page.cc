#include "cli/report/page.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "cli/page.h"
#include "cli/report/page_template.h"
#include "lockstep/base/check.h"
#include "lockstep/base/units.h"

namespace lockstep::cli {
namespace {

constexpr std::size_t kMostPoints = 300;  // of a curve

std::string label_of(const std::vector<RunFolder>& runs, std::size_t i) {
  return runs.size() > 1 ? std::string(1, static_cast<char>('A' + i)) : "";
}

std::string marked(std::string_view words, char mark, const std::string& by) {
  std::string out;
  for (const char c : words) c == mark ? out += by : out += c;
  return out;
}

// What is not finite becomes a text when it is written, and is read back as that.
Json curve_json(const std::vector<draw::CurvePoint>& points) {
  return Json::object(
      {{"of", points.size()},
       {"points", Json::list(draw::thinned(points, kMostPoints), [](const draw::CurvePoint& point) {
          return Json::array({static_cast<std::int64_t>(point.x), point.y});
        })}});
}

// Settings and facts of the environment that are not the same in all runs that tell them.
Json differences_json(const std::vector<RunFolder>& runs) {
  std::vector<std::string> keys;
  std::vector<std::map<std::string, std::string>> values(runs.size());
  const auto add = [&](std::size_t i, const std::string& key, const std::string& value) {
    if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
    values[i][key] = value;
  };
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const auto& [key, value] : runs[i].settings) add(i, key, value);
    for (const char* key : {"lockstep", "model", "layout"})
      add(i, key, runs[i].json.find(key)->as_text());
    for (const Json& fact : runs[i].json.find("environment")->items())
      if (const std::string& key = fact.find("key")->as_text(); key != "time" && key != "command")
        add(i, key, fact.find("value")->as_text());
  }
  Json list = Json::array();
  for (const std::string& key : keys) {
    Json row = Json::object({{"name", key}});
    std::set<std::string> different;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const auto found = values[i].find(key);
      if (found == values[i].end()) continue;
      different.insert(found->second);
      row.set(label_of(runs, i), found->second);
    }
    if (different.size() > 1) list.push(std::move(row));
  }
  return list;
}

// Of the last evaluations of all runs.
Json lowest_of(const std::vector<RunFolder>& runs) {
  Json lowest;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Json* const eval = runs[i].json.find("best_eval");
    if (eval == nullptr || !eval->find("loss")->is_number()) continue;
    if (lowest.is_null() || eval->find("loss")->as_real() < lowest.find("loss")->as_real())
      lowest = Json(*eval).set("label", label_of(runs, i));
  }
  return lowest;
}

class ReportPage final : public HtmlPage {
 public:
  ReportPage(const Json& report, const std::vector<RunFolder>& runs)
      : HtmlPage(report), runs_(runs) {}

  std::string html() {
    std::string out = filled(kReportHead);
    const bool is_one = runs_.size() == 1;
    out += filled(is_one ? kReportOne : kReportSeveral);
    if (is_one)
      out += "<section id=\"answer\">\n<h2>The answer</h2>\n" + of_run(0, kReportTiles) +
             "</section>\n";
    out += filled(kReportCurves);
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      if (!is_one)
        out += of_run(i, "<section>\n<h2>{@.label b}: {@.name code}</h2>\n") +
               of_run(i, kReportTiles) + "</section>\n";
      out += of_run(i, kReportRun);
    }
    return out + filled(kReportEnd);
  }

 private:
  std::string of_run(std::size_t i, std::string_view words) {
    run_ = i;
    return filled(marked(words, '@', join_parts("runs.", i)));
  }

  std::string drawn(std::string_view part) const override {
    if (part == "curves") return curves();
    if (part == "notes") return notes();
    if (part == "differences") return differences();
    LS_CHECK(part == "timeline", part);
    return runs_[run_].timeline;
  }

  std::string notes() const {
    const std::string list = join_parts("runs.", run_, ".notes");
    std::string items;
    for (std::size_t i = 0; i < count(list); ++i)
      items += join_parts("<li>", cell(join_parts(list, ".", i), "span"), "</li>");
    return items.empty() ? "" : join_parts("<ul class=\"notes\">", items, "</ul>");
  }

  std::string differences() const {
    std::string columns;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const std::string label = label_of(runs_, i);
      columns += join_parts(" | ", label, "=", label, " code");
    }
    return filled(join_parts("{#differences | setting=name", columns, "}"));
  }

  std::string curves() const {
    struct Chart {
      const char* title;
      std::size_t curve;
      bool from_zero, may_be_log;
    };
    constexpr Chart kCharts[] = {{"Loss", 0, false, true},
                                 {"Gradient norm", 2, false, true},
                                 {"Tokens a second", 4, true, false},
                                 {"Learning rate", 3, true, false}};
    std::string out;
    for (const Chart& chart : kCharts) {
      draw::Curves picture = {
          .title = chart.title, .from_zero = chart.from_zero, .may_be_log = chart.may_be_log};
      for (std::size_t i = 0; i < runs_.size(); ++i) {
        const auto colour = static_cast<int>(i);
        picture.curves.push_back({label_of(runs_, i), colour, false,
                                  draw::thinned(runs_[i].curves[chart.curve], kMostPoints)});
        const auto& evaluations = runs_[i].curves[1];
        if (chart.curve == 0 && !evaluations.empty()) {
          if (runs_.size() == 1) picture.curves.back().name = "training";
          picture.curves.push_back(
              {runs_.size() == 1 ? "validation" : join_parts(label_of(runs_, i), " validation"),
               runs_.size() == 1 ? 1 : colour, true, draw::thinned(evaluations, kMostPoints)});
        }
        picture.marks.insert(picture.marks.end(), runs_[i].resumed.begin(), runs_[i].resumed.end());
      }
      out += "<div class=\"chart\">\n" + draw::curves_svg(picture) + "</div>\n";
    }
    return out;
  }

  const std::vector<RunFolder>& runs_;
  std::size_t run_ = 0;
};

}  // namespace

Json report_json(const std::vector<RunFolder>& runs) {
  Json all = Json::array();
  bool is_thinned = false, is_resumed = false;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Json json = runs[i].json, curves = Json::object();
    for (std::size_t c = 0; c < std::size(kRunCurves); ++c) {
      curves.set(kRunCurves[c], curve_json(runs[i].curves[c]));
      is_thinned = is_thinned || runs[i].curves[c].size() > kMostPoints;
    }
    is_resumed = is_resumed || !runs[i].resumed.empty();
    json.set("label", label_of(runs, i))
        .set("has_skipped", json.find("skipped")->as_int() > 0)
        .set("has_timeline", !runs[i].timeline.empty())
        .set("curves", std::move(curves));
    all.push(std::move(json));
  }
  return Json::object({{"schema", "lockstep.report/1"},
                       {"version", LOCKSTEP_VERSION},
                       {"several", runs.size() > 1},
                       {"resumed", is_resumed},
                       {"thinned", is_thinned},
                       {"most_points", kMostPoints},
                       {"lowest", lowest_of(runs)},
                       {"differences", differences_json(runs)},
                       {"runs", std::move(all)}});
}

std::string report_page(const Json& report, const std::vector<RunFolder>& runs) {
  return ReportPage(report, runs).html();
}

}  // namespace lockstep::cli

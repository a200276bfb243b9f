#include "cli/plan/page.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "cli/plan/page_style.h"
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

using Form = std::string (*)(double);
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

std::string element(const char* name, const std::string& attributes, const std::string& inside) {
  return join_parts("<", name, attributes.empty() ? "" : " ", attributes, ">", inside, "</", name,
                    ">");
}

std::string of_class(const char* name) { return strf("class=\"%s\"", name); }
std::string width_of(double share) { return strf("style=\"width:%.2f%%\"", 100 * share); }

// A column of a table. `path` is that of a cell inside its row; a star in it stands for the index
// of the row in a path of its own. Without a form, cells are text, or yes and no.
struct Shown {
  const char* title;
  const char* path;
  Form form = nullptr;
};

std::string table(const std::vector<Shown>& columns, const Rows& rows, const char* name = "") {
  std::string head, body;
  for (const Shown& column : columns)
    head += element("th", column.form != nullptr ? of_class("n") : "", column.title);
  for (const auto& row : rows) {
    std::string cells;
    for (std::size_t i = 0; i < row.size(); ++i)
      cells += element("td",
                       join_parts(columns[i].form != nullptr ? "class=\"n\" " : "", "data-label=\"",
                                  columns[i].title, "\""),
                       element("span", "", row[i]));
    body += element("tr", "", cells) + "\n";
  }
  return element(
             "table", of_class(name),
             element("thead", "", element("tr", "", head)) + "\n" + element("tbody", "", body)) +
         "\n";
}

// Colours and their names, each pair kept on one line.
std::string legend(const std::vector<std::pair<const char*, const char*>>& items) {
  std::string out;
  for (const auto& [name, words] : items)
    out += element("span", "", element("i", of_class(name), "") + words) + " ";
  return element("p", of_class("note legend"), out) + "\n";
}

// Whether a word of the step is computing, talking or waiting: the class of its bar.
const char* kind_of(std::string_view term) {
  for (const char* compute : {"forward", "backward", "head"})
    if (term == compute) return "compute";
  for (const char* own : {"recompute", "optimizer", "bubble", "spread"})
    if (term == own) return own;
  return "comm";
}

class PlanPage {
 public:
  PlanPage(const Json& plan, const std::string& timeline) : plan_(plan), timeline_(timeline) {}

  std::string html() const {
    const std::string title = xml_escaped(
        join_parts(at("model").as_text(), " on ", at("cluster").as_text(), ": training plan"));
    std::string body = header() + answer();
    body += section("alternatives", "Alternatives, and why not", alternatives());
    body += section("step", "What the step is made of", step());
    body += section("memory", "Memory of each pipeline rank", memory());
    body += section("timeline", "Timeline of the pipeline", timeline());
    body += section("sensitivity", "What would change the answer", sensitivity());
    body += section("cost", "Cost", cost());
    body += section("uncertainty", "How sure this is", uncertainty());
    body += section("assumed", "What was assumed", assumed());
    body += section("sources", "Sources", sources());
    return join_parts(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta name=\"color-scheme\" content=\"light dark\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
        "'unsafe-inline'\">\n<title>",
        title, "</title>\n<style>\n", kPageStyle, "</style>\n</head>\n<body>\n", body,
        "</body>\n</html>\n");
  }

 private:
  const Json* find(const std::string& path) const {
    const Json* found = &plan_;
    for (const std::string_view part : split(path, '.')) {
      if (found->is_array())
        found = &found->items()[*number_in<std::size_t>(part)];
      else
        found = found->find(part);
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

  std::string number(const std::string& path, Form form) const {
    const Json& value = at(path);
    return element("data", join_parts("value=\"", value.dump(), "\" data-json=\"", path, "\""),
                   form(value.as_real()));
  }
  std::string text(const std::string& path, const char* name = "span") const {
    return element(name, join_parts("data-json=\"", path, "\""), xml_escaped(at(path).as_text()));
  }
  std::string cell(const std::string& path, Form form) const {
    const Json* value = find(path);
    if (value == nullptr) return form == nullptr ? "" : "-";
    if (value->is_bool()) return value->as_bool() ? "yes" : "no";
    if (!value->is_text()) return number(path, form);
    return text(path, path.ends_with("name") || path.ends_with("winner") ? "code" : "span");
  }
  // Of an item of a list.
  std::vector<std::string> row(const std::string& list, std::size_t i,
                               const std::vector<Shown>& columns) const {
    std::vector<std::string> cells;
    for (const auto& [title, path, form] : columns) {
      const std::string_view words = path;
      const std::size_t star = words.find('*');
      cells.push_back(cell(star == words.npos
                               ? join_parts(list, ".", i, ".", words)
                               : join_parts(words.substr(0, star), i, words.substr(star + 1)),
                           form));
    }
    return cells;
  }
  std::string listing(const std::string& list, const std::vector<Shown>& columns,
                      const char* name = "") const {
    Rows rows;
    for (std::size_t i = 0; i < count(list); ++i) rows.push_back(row(list, i, columns));
    return table(columns, rows, name);
  }
  // Other choices, rules or machines.
  std::string others(const char* what, const std::string& list) const {
    return listing(list, {{what, "change"},
                          {"time of a token", "slower", signed_percent},
                          {"layout", "name"},
                          {"where it goes", "why"}});
  }

  std::string section(const char* id, const char* title, const std::string& inside) const {
    return join_parts("<section id=\"", id, "\">\n<h2>", title, "</h2>\n", inside, "</section>\n");
  }
  static std::string paragraph(const std::string& inside) {
    return element("p", "", inside) + "\n";
  }
  static std::string note(const std::string& inside) {
    return element("p", of_class("note"), inside) + "\n";
  }

  std::string header() const {
    return join_parts("<header>\n<p class=\"kind\">Training plan</p>\n<h1>", text("model"), " on ",
                      text("cluster"), "</h1>\n<p>", number("global_batch", whole),
                      " sequences of ", number("seq", whole), " tokens a step, ",
                      number("report.tokens_per_step", scaled), " tokens in all; products in ",
                      text("dtype"), "; objective ", text("objective"), ".</p>\n<pre>",
                      text("report.command", "code"), "</pre>\n</header>\n");
  }

  static std::string tile(const char* title, const std::string& value, const std::string& more) {
    return element("div", "",
                   element("dt", "", title) + element("dd", of_class("big"), value) +
                       element("dd", "", more)) +
           "\n";
  }

  std::string answer() const {
    const bool fits = at("plans.0.fits").as_bool();
    std::string tiles =
        tile("Step time", number("plans.0.step_s.total", seconds),
             join_parts("P50 ", number("plans.0.step_s.p50", seconds), ", P95 ",
                        number("plans.0.step_s.p95", seconds))) +
        tile("Tokens a second", number("plans.0.tokens_per_s", scaled),
             number("report.tokens_per_s_per_device", scaled) + " a device") +
        tile("MFU", number("plans.0.mfu.causal", percent),
             join_parts("of the ", text("plans.0.mfu.peak"), " peak; ",
                        number("plans.0.mfu.full", percent), " without a causal mask")) +
        tile("Memory of a device", number("plans.0.memory.device_bytes", memory_of),
             join_parts("of ", number("plans.0.memory.device_has_bytes", memory_of), ", at the ",
                        text("plans.0.memory.event"), " of pipeline rank ",
                        number("plans.0.memory.pipeline_rank", whole))) +
        tile("Goodput", number("plans.0.goodput.share", percent),
             join_parts("a failure every ", number("plans.0.goodput.mtbf_s", seconds),
                        ", saves every ", number("plans.0.goodput.save_every_s", seconds)));
    if (find("plans.0.run") != nullptr) tiles += cost_tiles();
    std::string notes;
    for (std::size_t i = 0; i < count("warnings"); ++i)
      notes += element("li", "", text(join_parts("warnings.", i)));
    return join_parts("<section id=\"answer\"", fits ? "" : " class=\"unfit\"", ">\n<h2>",
                      fits ? "The answer" : "Does not fit", "</h2>\n<p class=\"layout\">",
                      text("plans.0.name", "code"), "</p>\n<dl class=\"tiles\">\n", tiles,
                      "</dl>\n", notes.empty() ? "" : element("ul", of_class("notes"), notes),
                      at("plans.0.runs_here").as_bool()
                          ? ""
                          : note("Priced; this version of Lockstep does not run it."),
                      "</section>\n");
  }

  std::string cost_tiles() const {
    std::string tiles = tile("Days", number("plans.0.run.days", days),
                             join_parts("for ", number("plans.0.run.tokens", scaled),
                                        " tokens, failures counted")) +
                        tile("Device-hours", number("plans.0.run.device_hours", scaled),
                             number("plans.0.devices", whole) + " devices");
    if (find("plans.0.run.money") != nullptr)
      tiles += tile("Cost", number("plans.0.run.money", scaled),
                    join_parts("at ", number("report.price", plain), " a device-hour"));
    return tiles;
  }

  std::string alternatives() const {
    const std::vector<Shown> columns = {{"", "report.plans.*.rank", whole},
                                        {"layout", "name"},
                                        {"step", "step_s.total", seconds},
                                        {"slower", "report.plans.*.slower", signed_percent},
                                        {"tied", "tied", plain},
                                        {"MFU", "mfu.causal", percent},
                                        {"memory", "memory.device_bytes", memory_of},
                                        {"bubble", "report.plans.*.bubble_share", percent},
                                        {"exposed comm", "report.plans.*.exposed_share", percent},
                                        {"why not", "report.plans.*.why"}};
    return join_parts(
        listing("plans", columns), own(),
        note(join_parts("The best of ", number("layouts", whole), " layouts, of which ",
                        number("priced", whole), " were priced and ", number("simulated", whole),
                        " simulated pass by pass. Tied: the difference is smaller than the median "
                        "error of predicting published runs.")),
        "<h3>One choice changed</h3>\n", others("change", "report.neighbours"),
        "<h3>Placement by rule</h3>\n", others("rule", "report.rules"));
  }

  std::string own() const {
    if (find("own") == nullptr) return "";
    return paragraph(join_parts(
        "Yours, ", text("own.name", "code"), ", takes ", number("own.step_s.total", seconds), ", ",
        number("report.own.slower", signed_percent), " and ",
        number("own.memory.device_bytes", memory_of), ": ", text("report.own.why"), "."));
  }

  std::string step() const {
    std::string whole_bar, bars;
    for (std::size_t i = 0; i < count("report.terms"); ++i) {
      const std::string term = join_parts("report.terms.", i);
      const double share = real(term + ".share");
      if (share < 0.0005) continue;
      const std::string& name = at(term + ".name").as_text();
      const std::string fill =
          join_parts(of_class(kind_of(name)), " ", width_of(share), " title=\"", name, "\"");
      whole_bar += element("i", fill, "");
      bars +=
          element("div", of_class("bar"),
                  join_parts(
                      "<span>", text(term + ".name", "b"), " <small>", text(term + ".what"),
                      "</small></span>", element("span", of_class("track"), element("i", fill, "")),
                      number(term + ".seconds", seconds), number(term + ".share", percent))) +
          "\n";
    }
    std::string out = element("div", of_class("track whole"), whole_bar) + "\n" +
                      element("div", of_class("bars"), bars) + "\n";
    out += legend({{"compute", "compute"},
                   {"recompute", "recompute"},
                   {"comm", "exposed communication"},
                   {"bubble", "bubble"},
                   {"optimizer", "optimizer"},
                   {"spread", "slower devices"}});
    if (find("plans.0.step_s.by_units") != nullptr)
      out += note("Op by op, as this version would run it: " +
                  number("plans.0.step_s.by_units", seconds) + ".");
    return out;
  }

  static constexpr std::pair<const char*, const char*> kClasses[] = {
      {"m0", "weights"},     {"m1", "gradients"}, {"m2", "optimizer"},
      {"m3", "activations"}, {"m4", "logits"},    {"m5", "transients"}};

  // Neighbours that hold the same, by their first and last; no more than a page has room for, with
  // the fullest.
  std::vector<std::pair<std::size_t, std::size_t>> stage_groups() const {
    const Json::Array& stages = at("plans.0.stages").items();
    const auto same = [](Json a, Json b) {
      return a.set("pipeline_rank", 0) == b.set("pipeline_rank", 0);
    };
    std::vector<std::pair<std::size_t, std::size_t>> all, chosen;
    for (std::size_t i = 0; i < stages.size(); ++i)
      if (i > 0 && same(stages[i - 1], stages[i]))
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

  // Of a device that has or needs so much.
  std::string memory_bar(const std::string& stage, double all) const {
    std::string parts;
    const auto add = [&](const char* name, const char* words, double bytes) {
      parts += element(
          "i", join_parts(of_class(name), " ", width_of(bytes / all), " title=\"", words, "\""),
          "");
    };
    for (const auto& [name, words] : kClasses)
      add(name, words, real(join_parts(stage, ".", words)));
    add("m6", "reserve and context",
        real(stage + ".device_bytes") - real(stage + ".allocated_bytes"));
    return parts + strf("<b style=\"left:%.2f%%\"></b><b class=\"end\" style=\"left:%.2f%%\"></b>",
                        100 * real("report.usable_bytes") / all,
                        100 * real("plans.0.memory.device_has_bytes") / all);
  }

  std::string memory() const {
    const double all =
        std::max(real("plans.0.memory.device_has_bytes"), real("plans.0.memory.device_bytes"));
    const std::vector<Shown> columns = {{"rank", "pipeline_rank", whole},
                                        {"weights", "weights", memory_of},
                                        {"gradients", "gradients", memory_of},
                                        {"optimizer", "optimizer", memory_of},
                                        {"activations", "activations", memory_of},
                                        {"logits", "logits", memory_of},
                                        {"transients", "transients", memory_of},
                                        {"device", "device_bytes", memory_of},
                                        {"fullest at", "event"}};
    std::string bars;
    Rows rows;
    for (const auto& [first, last] : stage_groups()) {
      const std::string stage = join_parts("plans.0.stages.", first);
      rows.push_back(row("plans.0.stages", first, columns));
      std::string& ranks = rows.back().front();
      if (last > first)
        ranks += " to " + number(join_parts("plans.0.stages.", last, ".pipeline_rank"), whole);
      bars += element("div", of_class("bar mem"),
                      join_parts("<span>rank ", ranks, "</span>",
                                 element("span", of_class("track"), memory_bar(stage, all)),
                                 number(stage + ".device_bytes", memory_of))) +
              "\n";
    }
    std::vector<std::pair<const char*, const char*>> parts(std::begin(kClasses),
                                                           std::end(kClasses));
    parts.emplace_back("m6", "reserve and context");
    return join_parts(
        legend(parts), element("div", of_class("bars"), bars), "\n",
        note(join_parts("The lines are what a layout may use, ",
                        number("report.usable_bytes", memory_of), ", and what a device has, ",
                        number("plans.0.memory.device_has_bytes", memory_of), ": ",
                        number("report.headroom", percent),
                        " stays free. Each rank is shown at its own fullest moment.")),
        table(columns, rows));
  }

  std::string timeline() const {
    if (timeline_.empty())
      return paragraph(
          "There is no pipeline: every device runs its microbatches one after the "
          "other.");
    return join_parts(
        element("div", of_class("figure"), "\n" + timeline_), "\n",
        note(join_parts("The first microbatches alone, ", text("report.timeline.shape"), ": ",
                        number("report.timeline.step_s", seconds),
                        ", of which the busiest rank waits ",
                        number("report.timeline.bubble_s", seconds), " and holds at most ",
                        number("report.timeline.peak_microbatches", plain),
                        " microbatches. The others follow in the same rhythm; data-parallel "
                        "communication, optimizer and slower devices come on top.")));
  }

  std::string sensitivity() const {
    return join_parts(others("with", "report.what_if"),
                      "<h3>Rates whose error could change the choice</h3>\n",
                      count("report.flips") == 0
                          ? paragraph("None, within their bands and among the layouts above.")
                          : listing("report.flips", {{"rate", "rate"},
                                                     {"what it is", "what"},
                                                     {"if off by", "change", signed_percent},
                                                     {"then best", "winner"}}));
  }

  // Where runs may lie, on a scale of seconds: the ends of both bands, and three lines.
  std::string range() const {
    const auto path = [](std::size_t i) { return join_parts("report.quantiles.", i, ".step_s"); };
    double low = real(path(0)), high = 0;
    for (std::size_t i = 0; i < count("report.quantiles"); ++i)
      low = std::min(low, real(path(i))), high = std::max(high, real(path(i)));
    const double from = 0.85 * low, across = 1.08 * high - from;
    const auto place = [&](std::size_t first, std::size_t last) {
      return strf("style=\"left:%.2f%%;width:%.2f%%\"", 100 * (real(path(first)) - from) / across,
                  100 * (real(path(last)) - real(path(first))) / across);
    };
    std::string out = element("i", of_class("most") + " " + place(0, 6), "") +
                      element("i", of_class("half") + " " + place(1, 4), "");
    for (const std::size_t i : {2, 3, 5})
      out += element("b", of_class(i == 3 ? "now" : "") + " " + place(i, i), "");
    for (const std::size_t i : {0, 1, 4, 6})
      out += element("span", place(i, i), number(path(i), seconds));
    for (const auto& [i, words] :
         {std::pair<std::size_t, const char*>{3, "predicted "}, {5, "P95 "}})
      out += element("span", "class=\"above\" " + place(i, i), words + number(path(i), seconds));
    return element("div", of_class("range"), out) + "\n" +
           legend({{"half", "half of runs"}, {"most", "nine of ten"}}) +
           note("Thin lines: P50 and P95 of held-out sources.");
  }

  std::string cost() const {
    if (find("plans.0.run") == nullptr)
      return paragraph(
          "Not asked: <code>--tokens</code> tells days and device-hours, "
          "<code>--price</code> what they cost.");
    std::string out = join_parts(
        number("plans.0.run.tokens", scaled), " tokens at ", number("plans.0.tokens_per_s", scaled),
        " a second, of which failures and saves leave ", number("plans.0.goodput.share", percent),
        ", take ", number("plans.0.run.days", days), " days on ", number("plans.0.devices", whole),
        " devices: ", number("plans.0.run.device_hours", scaled), " device-hours");
    if (find("plans.0.run.money") != nullptr)
      out += join_parts(", at ", number("report.price", plain), " each ",
                        number("plans.0.run.money", scaled));
    return paragraph(out + ". How much more or less it may be is below.");
  }

  std::string uncertainty() const {
    std::vector<Shown> times = {{"", "what"}, {"step", "step_s", seconds}};
    if (find("plans.0.run") != nullptr) {
      times.push_back({"days", "days", days});
      times.push_back({"device-hours", "device_hours", scaled});
    }
    if (find("plans.0.run.money") != nullptr) times.push_back({"cost", "money", scaled});
    const std::string held = "report.evidence.held_out";
    return join_parts(
        range(), listing("report.quantiles", times, "short"), "<h3>The evidence</h3>\n",
        paragraph("Predictions were compared with training runs that others measured and "
                  "published. An error is the logarithm of predicted over measured. These runs "
                  "are of sources that nobody had looked at while the model was made:"),
        listing("report.evidence.unseen",
                {{"runs", "runs", whole},
                 {"sources", "sources", whole},
                 {"timed", "timed", whole},
                 {"median error", "median_percent", percents},
                 {"p90", "p90_percent", percents},
                 {"of constant utilisation", "constant_utilisation_percent", percents},
                 {"of memory", "memory_median_percent", percents},
                 {"verdicts on fitting", "verdicts", whole},
                 {"of them right", "verdicts_right", whole}}),
        paragraph(join_parts("On held-out sources that were looked at, if seldom, the median error "
                             "is ",
                             number(held + ".median_percent", percents), ", p90 ",
                             number(held + ".p90_percent", percents), ", bias ",
                             number(held + ".bias_percent", percents),
                             ". Errors within one source are alike: a run of your own tells "
                             "most.")));
  }

  // A figure of a data sheet, with its origin where that is not the vendor.
  std::string figure(const std::string& path, Form form) const {
    if (find(path) == nullptr) return "-";
    const bool is_published = at(path + ".origin").as_text() == "published";
    return number(path + ".value", form) +
           (is_published ? "" : " <small>" + text(path + ".origin") + "</small>");
  }

  std::string assumed() const {
    const std::string device = "report.cluster.device";
    return join_parts(
        paragraph(join_parts(number("report.cluster.devices", whole), " x ",
                             text(device + ".title"), ": ",
                             figure(device + ".memory_bytes", memory_of), " at ",
                             figure(device + ".memory_bytes_per_s", bandwidth),
                             "; products in bf16 ", figure(device + ".peak_bf16_flops", flops),
                             ", in fp8 ", figure(device + ".peak_fp8_flops", flops), ".")),
        listing("report.cluster.tiers",
                {{"network", "name"},
                 {"devices", "devices", whole},
                 {"speed, each way", "bytes_per_s.value", bandwidth},
                 {"latency", "latency_s.value", seconds},
                 {"these are", "bytes_per_s.origin"}},
                "short"),
        "<h3>Rates of the device</h3>\n",
        paragraph(join_parts("Of the family ", text("report.rates.family"),
                             at("report.rates.calibrated").as_bool()
                                 ? ", fitted on published runs."
                                 : ", borrowed from another family: times are rough.")),
        listing("report.rates.terms", {{"rate", "rate"},
                                       {"what it is", "what"},
                                       {"value", "value", plain},
                                       {"known within", "band", percent},
                                       {"source", "source"}}),
        "<h3>The software</h3>\n",
        listing("report.stack", {{"trait", "what"}, {"value", "value", plain}}, "short"),
        note(join_parts("A device fails once in ", number("report.mtbf_device_hours", whole),
                        " hours; a save holds training up for ", number("report.save_s", seconds),
                        ", and a restart takes ", number("report.restart_s", seconds), ".")));
  }

  std::string sources() const {
    return join_parts(
        "<ul>\n"
        "<li>Errors on published runs, source by source: docs/accuracy.md of Lockstep, written by "
        "<code>lockstep backtest</code>.</li>\n"
        "<li>How layouts are sought and priced: docs/planning.md.</li>\n"
        "<li>Failures: Llama Team, <cite>arXiv 2407.21783</cite>; the best interval between saves: "
        "Daly, <cite>2006</cite>.</li>\n"
        "<li>Sharded states: Rajbhandari et al., <cite>arXiv 1910.02054</cite>; activations: "
        "Korthikanti et al., <cite>arXiv 2205.05198</cite>.</li>\n"
        "<li>Placement by rule: Narayanan et al., <cite>arXiv 2104.04473</cite>.</li>\n"
        "</ul>\n<footer>Lockstep ",
        text("report.version"), "; ", text("schema"), "</footer>\n");
  }

  const Json& plan_;
  const std::string& timeline_;
};

}  // namespace

std::string plan_page(const Json& plan, const std::string& timeline) {
  return PlanPage(plan, timeline).html();
}

}  // namespace lockstep::cli

#include "tests/cli/schedules_page.h"

#include <gtest/gtest.h>

#include "cli/verbs.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/pipeline/catalog.h"
#include "tests/cli/answer.h"

namespace lockstep::cli {
namespace {

// The name as the command takes it: with four chunks, where any number will do, also shown beside
// two.
std::string compared() {
  std::string names;
  for (const pipeline::CatalogRow& row : pipeline::catalog()) {
    names += (names.empty() ? "" : ",") + std::string(row.name);
    if (row.chunks == 0) names += "," + std::string(row.name) + ":4";
  }
  return names;
}

struct PageRow {
  std::string name;
  std::int64_t chunks = 1;
  double bubble = 0, peak = 0;
};

std::vector<PageRow> table(const std::string& hop, bool refilled) {
  std::vector<std::string> words = {"simulate", "--pp",  "8", "--microbatches", "32", "--compare",
                                    compared(), "--p2p", hop, "--json"};
  if (refilled) words.emplace_back("--refill");
  const Result<Json> json = Json::parse(ask_simulate(words));
  std::vector<PageRow> rows;
  for (const Json& one : json->find("schedules")->items())
    rows.push_back({one.find("schedule")->as_text(), one.find("vpp")->as_int(),
                    one.find("bubble")->as_real(), one.find("peak")->as_real()});
  return rows;
}

constexpr const char* kPageIntroduction = R"(# Pipeline schedules

A pipeline cuts a model into stages and puts them on pipeline ranks, one after the other. A microbatch goes through all
stages forwards (F) and back. The backward pass of a stage has two halves: the gradient of its input (I), for which the
stage before is waiting, and the gradients of its weights (W), for which nobody is. B is both at once. A schedule says
which of these a pipeline rank computes, and in which order. Two things follow from the order:

- the **bubble**, time in which the busiest pipeline rank stands idle, because what it needs is not there yet;
- the **peak**, activations that are held at once: F takes them, W gives them back. One unit is what a whole
  pipeline rank holds of one microbatch.

`lockstep simulate` times a schedule on a virtual clock, compares several, finds one for the memory there is, and draws
them:

```sh
lockstep simulate --pp 4 --microbatches 8 --schedule zbv
lockstep simulate --pp 8 --microbatches 32 --compare all --p2p 0.05
lockstep simulate --pp 8 --microbatches 32 --schedule auto --memory-cap 6
lockstep simulate run.toml --schedule interleaved:4 --svg step.svg --trace step.json
```

Formulas are in p pipeline ranks, v virtual stages per pipeline rank (vpp), m microbatches, groups of N, pipeline rank r,
and tF, tB, tW: the times of F, I and W of one microbatch on a whole pipeline rank, of which a virtual stage takes 1/v.
They hold where P2P takes no time, and, after "where", only there; the simulator needs no such condition.

This page is written by a test from the catalogue of schedules and fails when a number or a picture changes.

)";

std::string number(double value) { return strf("%.4g", value); }

using Tables =
    std::vector<std::vector<PageRow>>;  // for each hop of kHops, refilled after as they are
constexpr const char* kHops[] = {"0", "0.05", "0.2"};

Tables all_tables() {
  Tables tables;
  for (const bool refilled : {false, true})
    for (const char* hop : kHops) tables.push_back(table(hop, refilled));
  return tables;
}

// "zbv, 3.5": the smallest bubble under the cap; of equal ones that of the least memory.
std::string best(const std::vector<PageRow>& rows, double cap) {
  const PageRow* best = nullptr;
  for (const PageRow& row : rows) {
    if (row.peak > cap) continue;
    if (best == nullptr || row.bubble < best->bubble ||
        (row.bubble == best->bubble && row.peak < best->peak))
      best = &row;
  }
  return best == nullptr ? "-" : join_parts(best->name, ", ", number(best->bubble));
}

std::string choice_section(const Tables& tables) {
  std::string text =
      "## Which one\n\n"
      "It depends on the memory there is and on what a P2P transfer costs. The smallest bubble on "
      "eight pipeline ranks with 32\nmicrobatches and F = I = W = 1, W refilled, for activations "
      "of so many microbatches:\n\n"
      "| at most | P2P 0 | P2P 0.05 | P2P 0.2 |\n|---:|---|---|---|\n";
  for (const double cap : {4, 5, 8, 9, 10, 12, 32}) {
    text += "| " + number(cap);
    for (std::size_t hop = 0; hop < std::size(kHops); ++hop)
      text += " | " + best(tables[std::size(kHops) + hop], cap);
    text += " |\n";
  }
  return text +
         "\nBelow the eight that 1f1b holds there is a V: half of its activations for half of its "
         "bubble. Above, longer warm-ups\nand W in reserve hide P2P transfers. `--schedule auto` "
         "searches for your own costs, and further than these.\n\n";
}

std::string numbers_section(const Tables& tables) {
  std::string text =
      "## All at once\n\n"
      "Eight pipeline ranks, 32 microbatches, F = I = W = 1, so a pipeline rank works for 96. "
      "Bubbles at three P2P times;\n*refilled* moves W into idle time, at the same peak "
      "(`--refill`). `:4` has four virtual stages.\n\n"
      "| schedule | vpp | peak | bubble, P2P 0 | 0.05 | 0.2 | refilled, P2P 0 | 0.05 | 0.2 |\n"
      "|---|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  for (std::size_t i = 0; i < tables.front().size(); ++i) {
    const PageRow& row = tables.front()[i];
    const std::string base = row.name.substr(0, row.name.find(':'));
    text += join_parts("| [", row.name, "](#", base, ") | ", row.chunks, " | ", number(row.peak));
    for (const std::vector<PageRow>& other : tables) text += " | " + number(other[i].bubble);
    text += " |\n";
  }
  return text +
         "\nReading it: 1f1b pays for nearly two P2P transfers with every microbatch; a longer "
         "warm-up or W in reserve hides them.\nMore virtual stages help as long as a P2P transfer "
         "is short against a virtual stage. Refilling takes the backward pass apart, and brings "
         "1f1b to zb-h1.\n\n";
}

// Every arXiv number leads to its paper.
std::string linked(std::string text) {
  constexpr std::string_view kArxiv = "arXiv ";
  constexpr std::size_t kNumber = 10;  // "2401.10241"
  for (std::size_t at = text.find(kArxiv); at != std::string::npos; at = text.find(kArxiv, at)) {
    const std::string paper = text.substr(at + kArxiv.size(), kNumber);
    const std::string link = join_parts("[arXiv ", paper, "](https://arxiv.org/abs/", paper, ")");
    text.replace(at, kArxiv.size() + kNumber, link);
    at += link.size();
  }
  return text;
}

std::string row_section(const pipeline::CatalogRow& row) {
  const std::string name(row.name);
  const std::string summary =
      static_cast<char>(std::toupper(row.summary[0])) + std::string(row.summary.substr(1));
  return join_parts("## ", name, "\n\n", summary, ".\n\n", wrapped(std::string(row.use), 0, 0, 120),
                    "\n![", name, " on four pipeline ranks, with eight microbatches](schedules/",
                    name, ".svg)\n\n- bubble: `", row.bubble,
                    "`\n- activations on pipeline rank r: `", row.peak, "`\n- takes ", row.accepts,
                    "\n- from ", linked(std::string(row.source)),
                    "\n- drawn by `lockstep simulate --pp 4 "
                    "--microbatches 8 --schedule ",
                    name, " --svg OUT`\n\n");
}

}  // namespace

std::string ask_simulate(const std::vector<std::string>& words) {
  const Answer got = answer(simulate_verb(), words, 100);
  EXPECT_EQ(got.code, ExitCode::kOk) << got.err;
  return got.out;
}

std::string schedules_page() {
  const Tables tables = all_tables();
  std::string page = kPageIntroduction + choice_section(tables) + numbers_section(tables);
  for (const pipeline::CatalogRow& row : pipeline::catalog()) page += row_section(row);
  page.pop_back();
  return page;
}

}  // namespace lockstep::cli

// Fits what surrounds allocations (cost/peak_memory.cc) on calibration rows: what a device must
// have for a step to run, from out-of-memory verdicts, and what the vendor's tool shows. Leaves one
// model of a source out at a time.
//
//   fit_memory published-runs.csv
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/backtest/run_request.h"

namespace {

using lockstep::backtest::PublishedRun;
using lockstep::backtest::RunTable;

struct Row {
  const PublishedRun* run = nullptr;
  double allocated = 0, varying = 0, capacity = 0;
  bool is_oom = false;
};

// need = allocated + share x varying + fixed.
struct Limit {
  double share = 0, fixed = 0;
};

double right_share(const std::vector<Row>& rows, const Limit& limit) {
  double right = 0;
  for (const Row& row : rows)
    right += (row.allocated + limit.share * row.varying + limit.fixed > row.capacity) == row.is_oom;
  return right / static_cast<double>(rows.size());
}

// The middle of the limits that are within a third of a percent of the best: the best itself is a
// corner of noise.
Limit fitted(const std::vector<Row>& rows) {
  std::vector<std::pair<double, Limit>> tried;
  for (double share = 0; share <= 0.6; share += 0.02)
    for (double fixed = 0; fixed <= 14e9; fixed += 0.5e9)
      tried.emplace_back(right_share(rows, {share, fixed}), Limit{share, fixed});
  const auto by_score = [](const auto& a, const auto& b) { return a.first < b.first; };
  const double best = std::ranges::max_element(tried, by_score)->first;
  Limit mean;
  double count = 0;
  for (const auto& [score, limit] : tried)
    if (score >= best - 0.0034) mean.share += limit.share, mean.fixed += limit.fixed, ++count;
  return {mean.share / count, mean.fixed / count};
}

void report_verdicts(const std::vector<Row>& rows) {
  const Limit all = fitted(rows);
  std::printf("needed: share %.3f, fixed %.2f GB: %.1f %% of %zu verdicts right\n", all.share,
              all.fixed / 1e9, 100 * right_share(rows, all), rows.size());
  std::set<std::string> models;
  for (const Row& row : rows)
    if (row.run->text("source") == "aleph-alpha-layouts") models.insert(row.run->text("model"));
  for (const std::string& model : models) {
    std::vector<Row> kept, left;
    for (const Row& row : rows) (row.run->text("model") == model ? left : kept).push_back(row);
    const Limit limit = fitted(kept);
    std::printf("  left out %s: share %.3f, fixed %.2f GB: %.1f %% of %zu right\n", model.c_str(),
                limit.share, limit.fixed / 1e9, 100 * right_share(left, limit), left.size());
  }
}

void report_shown(const std::vector<Row>& rows) {
  for (const double share : {0.05, 0.15, 0.25, 0.35}) {
    std::vector<double> fixed;
    for (const Row& row : rows)
      if (const auto bytes = row.run->measured_bytes();
          bytes && row.run->text("mem_kind").starts_with("device"))
        fixed.push_back(*bytes - row.allocated - share * row.varying);
    if (fixed.empty()) return;
    std::ranges::sort(fixed);
    std::printf("shown: share %.2f: fixed median %.2f GB, quartiles %.2f to %.2f (%zu rows)\n",
                share, fixed[fixed.size() / 2] / 1e9, fixed[fixed.size() / 4] / 1e9,
                fixed[fixed.size() * 3 / 4] / 1e9, fixed.size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: fit_memory FILE.csv\n"), 2;
  std::ifstream file(argv[1]);
  std::stringstream text;
  text << file.rdbuf();
  RunTable table;
  if (const auto ok = lockstep::backtest::read_runs(text.str(), table); !ok.ok())
    return std::fprintf(stderr, "%s\n", ok.error().message.c_str()), 1;
  std::vector<Row> verdicts, all;
  for (const PublishedRun& run : table.rows) {
    if (run.text("split") != "calib") continue;
    const auto request = request_of(run);
    if (!request.ok()) continue;
    const auto priced = price_run(*request);
    const auto& memory = priced.price.memory;
    const Row row{&run, memory.allocated(), memory.activations + memory.logits + memory.transients,
                  priced.price.usable, run.text("outcome") == "oom"};
    all.push_back(row);
    if (argc > 2 && run.measured_bytes())
      std::printf(
          "%s %.2f: weights %.2f grads %.2f optimizer %.2f kept %.2f logits %.2f transients %.2f "
          "stage %d\n",
          run.text("id").c_str(), *run.measured_bytes() / 1e9, memory.weights / 1e9,
          memory.grads / 1e9, memory.optimizer / 1e9, memory.activations / 1e9, memory.logits / 1e9,
          memory.transients / 1e9, memory.stage);
    const std::string& source = run.text("source");
    if (source == "aleph-alpha-layouts" || source == "bigscience-bloom") verdicts.push_back(row);
  }
  report_verdicts(verdicts);
  report_shown(all);
  return 0;
}

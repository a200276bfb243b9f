// Fits the device tables of cluster/rates.cc on the calibration rows of a file of published runs,
// one family of devices at a time, by moving one term after the other (coordinate descent on the
// mean absolute log error, every source with equal weight). Rows of the held-out split are dropped
// when the file is read. Prints the table and, for each term, the band within which the error grows
// by less than a tenth.
//
//   fit_rates published-runs.csv
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/backtest/run_request.h"

namespace {

using lockstep::backtest::price_run;
using lockstep::backtest::Priced;
using lockstep::backtest::PublishedRun;
using lockstep::backtest::RunRequest;
using lockstep::backtest::RunTable;
using lockstep::backtest::StackHabits;
using lockstep::cluster::DeviceRates;
using lockstep::cluster::kNumTerms;
using lockstep::cluster::Term;

struct Row {
  const PublishedRun* run = nullptr;
  RunRequest request;
  double seconds = 0;
  std::string group;
};

using Family = std::vector<Row>;

double error_of(const Row& row, const DeviceRates& rates) {
  return std::log(price_run(row.request, &rates).price.time.total() / row.seconds);
}

struct Range {
  double low, high, prior;
};
Range range_of(const Row& row, std::size_t term);

// Mean over groups (source and precision) of the mean absolute error.
double mean_error(const Family& rows, const DeviceRates& rates) {
  std::map<std::string, std::pair<double, int>> groups;
  for (const Row& row : rows) {
    auto& [sum, count] = groups[row.group];
    sum += std::abs(error_of(row, rates));
    ++count;
  }
  double total = 0;
  for (const auto& [name, group] : groups) total += group.first / group.second;
  return total / static_cast<double>(groups.size());
}

// What is physically plausible; a product is never faster than the largest ever measured on the
// device (cluster/catalog.cc).
Range range_of(const Row& row, std::size_t term) {
  const auto& device = row.request.cluster->device;
  const auto most = [](double best, double peak) { return best > 0 ? best / peak : 0.85; };
  switch (static_cast<Term>(term)) {
    case Term::kGemm:
      return {0.5, most(device.largest_matmul_bf16.value, device.peak_bf16.value), 0.72};
    case Term::kGemm8:
      return {0.4, most(device.largest_matmul_fp8.value, device.peak_fp8.value), 0.6};
    case Term::kGrouped:
      return {0.4, 1.0, 0.7};
    case Term::kOperands:
      return {0.0, 4.0, 1.0};
    case Term::kWaves:
      return {0.0, 1.0, 0.5};
    case Term::kAttention:
      return {0.3, 0.75, 0.55};
    case Term::kStream:
      return {0.4, 0.9, 0.75};
    case Term::kHost:
      return {1e-5, 2e-3, 3e-4};
    case Term::kScaleUp:
      return {0.4, 0.9, 0.75};
    case Term::kNetwork:
      return {0.4, 0.95, 0.8};
    case Term::kTensorHidden:
      return {0.0, 0.9, 0.5};
    case Term::kOverlapTax:
      return {0.02, 0.4, 0.15};
    case Term::kSpread:
      return {0.0, 0.02, 0.004};
  }
  return {0, 1, 0.5};
}

// Links were measured by others and are not fitted: all_reduce of nccl-tests on eight A100 (235 of
// 300 GB/s) and on eight H100 without in-switch reduction (360 of 450), SimuMax's tables on B200
// (0.742); network adapters reach 23.5 of 25 and 48.5 of 50 GB/s by themselves (SimAI's tables) and
// 0.9 in Calculon's runs.
bool is_published(std::size_t term) {
  return static_cast<Term>(term) == Term::kScaleUp || static_cast<Term>(term) == Term::kNetwork;
}

void set_published(DeviceRates& rates) {
  rates.at(Term::kNetwork).value = 0.9;
  rates.at(Term::kScaleUp).value = rates.family == "ampere"   ? 0.78
                                   : rates.family == "hopper" ? 0.80
                                                              : 0.742;
}

// Terms that the rows do not determine stay near what the sources of planner constants say: a pull
// that half a range away costs half a percent.
double loss_of(const Family& rows, const DeviceRates& rates) {
  double pull = 0;
  for (std::size_t i = 0; i < kNumTerms; ++i) {
    const Range range = range_of(rows.front(), i);
    const double away = (rates.terms[i].value - range.prior) / (range.high - range.low);
    pull += 0.02 * away * away;
  }
  return mean_error(rows, rates) + pull;
}

DeviceRates fitted(const Family& rows, DeviceRates rates) {
  double best = loss_of(rows, rates);
  for (double step = 0.3; step > 0.006; step *= 0.5)
    for (int again = 0; again < 2; ++again)
      for (std::size_t i = 0; i < kNumTerms; ++i)
        for (const double sign : {1.0, -1.0}) {
          if (is_published(i)) continue;
          const double old = rates.terms[i].value;
          const Range range = range_of(rows.front(), i);
          const double span = range.high - range.low;
          const double moved = i == static_cast<std::size_t>(Term::kHost)
                                   ? old * std::exp(sign * step * 2)
                                   : old + sign * step * span;
          rates.terms[i].value = std::clamp(moved, range.low, range.high);
          const double loss = loss_of(rows, rates);
          if (loss < best - 1e-6)
            best = loss;
          else
            rates.terms[i].value = old;
        }
  return rates;
}

double band_of(const Family& rows, DeviceRates rates, std::size_t term) {
  const double best = loss_of(rows, rates), value = rates.terms[term].value;
  for (const double band : {0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.9}) {
    double worst = 1e9;
    for (const double sign : {1.0, -1.0}) {
      rates.terms[term].value = value * (1 + sign * band);
      worst = std::min(worst, loss_of(rows, rates));
    }
    if (worst > best * 1.1) return band;
  }
  return 0.9;
}

void set_all(Family& rows, const StackHabits& habits) {
  for (Row& row : rows)
    for (auto& candidate : row.request.candidates)
      set_habits(habits, stack_class_of(*row.run, candidate.zero), candidate.stack);
}

void report(const Family& rows, const DeviceRates& rates, bool verbose) {
  std::map<std::string, std::vector<double>> groups;
  for (const Row& row : rows) {
    const double error = error_of(row, rates);
    groups[row.group].push_back(error);
    if (verbose) {
      const Priced one = price_run(row.request, &rates);
      const auto& t = one.price.time;
      std::printf(
          "  %s %+.3f  pred %.3f meas %.3f | f %.2f b %.2f rc %.2f hd %.2f tp %.2f cp %.2f ep %.2f "
          "pp %.2f dp %.2f bub %.2f opt %.2f sp %.2f\n",
          row.run->text("id").c_str(), error, t.total(), row.seconds, t.forward / t.total(),
          t.backward / t.total(), t.recompute / t.total(), t.head / t.total(), t.tensor / t.total(),
          t.context / t.total(), t.expert / t.total(), t.pipe / t.total(), t.data / t.total(),
          t.bubble / t.total(), t.optimizer / t.total(), t.spread / t.total());
    }
  }
  for (auto& [name, errors] : groups) {
    std::vector<double> sizes;
    for (const double e : errors) sizes.push_back(std::abs(e));
    std::ranges::sort(sizes);
    std::ranges::sort(errors);
    std::printf("  %-40s %4zu rows  median |e| %5.1f %%  p90 %5.1f %%  signed %+5.1f %%\n",
                name.c_str(), sizes.size(), 100 * sizes[sizes.size() / 2],
                100 * sizes[sizes.size() * 9 / 10], 100 * errors[errors.size() / 2]);
  }
}

// What the fit says of a source it has not seen: the only honest guide to the shape of the model.
void cross_validate(Family& rows, const DeviceRates& start) {
  std::map<std::string, int> sources;
  for (const Row& row : rows) ++sources[row.run->text("source")];
  if (sources.size() < 2) return;
  for (const auto& [source, count] : sources) {
    std::vector<Row> kept, left;
    for (Row& row : rows)
      (row.run->text("source") == source ? left : kept).push_back(std::move(row));
    const DeviceRates rates = fitted(kept, start);
    std::vector<double> errors;
    for (const Row& row : left) errors.push_back(error_of(row, rates));
    std::vector<double> sizes;
    for (const double e : errors) sizes.push_back(std::abs(e));
    std::ranges::sort(sizes);
    std::ranges::sort(errors);
    std::printf("  left out %-28s median |e| %5.1f %%  p90 %5.1f %%  signed %+5.1f %%\n",
                source.c_str(), 100 * sizes[sizes.size() / 2], 100 * sizes[sizes.size() * 9 / 10],
                100 * errors[errors.size() / 2]);
    rows = std::move(kept);
    for (Row& row : left) rows.push_back(std::move(row));
  }
}

using Families = std::map<std::string, Family>;
using Tables = std::map<std::string, DeviceRates>;

// Calibration rows alone, by family of devices. Recipes that call themselves untuned are left out
// of the fit.
Families calibration_rows(const RunTable& table) {
  Families families;
  for (const PublishedRun& run : table.rows) {
    if (run.text("split") != "calib" || run.text("outcome") != "ok") continue;
    const std::string& schedule = run.text("schedule");
    if (schedule.find("vocab") != std::string::npos ||
        schedule.find("redistr") != std::string::npos)
      continue;
    if (run.text("notes").find("untuned") != std::string::npos) continue;
    const auto seconds = run.measured_seconds();
    auto request = request_of(run);
    if (!seconds || !request.ok()) continue;
    Row row{&run, *std::move(request), *seconds, {}};
    row.group = run.text("source") + (run.text("precision") == "fp8" ? "/8bit" : "") +
                (run.text("arch").starts_with("moe") ? "/moe" : "");
    families[std::string(row.request.candidates.front().rates->family)].push_back(std::move(row));
  }
  return families;
}

// Habits belong to all families, so they are moved outside and each family is fitted again. They
// too stay near what is plausible: no gaps, and passes that differ by half a percent.
StackHabits fit_all(Families& families, Tables& tables) {
  StackHabits habits = lockstep::backtest::kFittedHabits;
  const auto everything = [&](const StackHabits& tried) {
    double sum =
        0.1 * (tried.gaps_sharded * tried.gaps_sharded + tried.gaps_other * tried.gaps_other);
    sum += 4 * (std::pow(tried.jitter_tuned - 0.005, 2) + std::pow(tried.jitter_other - 0.005, 2));
    sum += 0.002 * std::pow(std::log(tried.network_other), 2);
    for (auto& [name, rows] : families) {
      set_all(rows, tried);
      tables[name] = fitted(rows, tables[name]);
      sum += loss_of(rows, tables[name]);
    }
    return sum;
  };
  using Member = double StackHabits::*;
  double best = everything(habits);
  for (double step = 0.06; step > 0.01; step /= 2)
    for (const auto& [member, scale] : {std::pair<Member, double>{&StackHabits::gaps_sharded, 1.0},
                                        {&StackHabits::gaps_other, 1.0},
                                        {&StackHabits::jitter_tuned, 0.2},
                                        {&StackHabits::jitter_other, 0.2},
                                        {&StackHabits::network_other, 2.0}})
      for (const double sign : {1.0, -1.0}) {
        StackHabits tried = habits;
        const bool is_share = member == &StackHabits::network_other;
        tried.*member = std::clamp(tried.*member + sign * step * scale, is_share ? 0.05 : 0.0,
                                   is_share ? 1.0 : 0.5);
        const Tables kept = tables;
        if (const double loss = everything(tried); loss < best - 1e-5)
          best = loss, habits = tried;
        else
          tables = kept;
      }
  for (auto& [name, rows] : families) set_all(rows, habits);
  return habits;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2)
    return std::fprintf(stderr, "usage: fit_rates FILE.csv [-v] [--no-fit] [--cross]\n"), 2;
  std::ifstream file(argv[1]);
  std::stringstream text;
  text << file.rdbuf();
  RunTable table;
  if (const auto ok = lockstep::backtest::read_runs(text.str(), table); !ok.ok())
    return std::fprintf(stderr, "%s\n", ok.error().message.c_str()), 1;
  const auto given = [&](const char* word) {
    return std::any_of(argv + 2, argv + argc,
                       [&](const char* arg) { return std::string(arg) == word; });
  };
  const bool fit = !given("--no-fit");
  Families families = calibration_rows(table);
  Tables tables;
  for (auto& [name, rows] : families) {
    tables[name] = *rows.front().request.candidates.front().rates;
    if (fit) set_published(tables[name]);
  }
  const StackHabits habits = fit ? fit_all(families, tables) : lockstep::backtest::kFittedHabits;
  std::printf("gaps: sharded %.3f, other %.3f; jitter: tuned %.4f, other %.4f; network: %.3f\n",
              habits.gaps_sharded, habits.gaps_other, habits.jitter_tuned, habits.jitter_other,
              habits.network_other);
  for (auto& [name, rows] : families) {
    const DeviceRates rates = fit ? fitted(rows, tables[name]) : tables[name];
    std::printf("%s: %zu rows\n  after %.2f %%\n", name.c_str(), rows.size(),
                100 * loss_of(rows, rates));
    for (std::size_t i = 0; i < kNumTerms; ++i)
      std::printf("  %s fit(%.4g, %.2f)\n", std::string(to_text(static_cast<Term>(i))).c_str(),
                  rates.terms[i].value, fit ? band_of(rows, rates, i) : 0);
    report(rows, rates, given("-v"));
    if (given("--cross")) cross_validate(rows, rates);
  }
  return 0;
}

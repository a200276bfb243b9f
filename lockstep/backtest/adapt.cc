#include "lockstep/backtest/adapt.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "lockstep/base/random.h"
#include "lockstep/base/units.h"

namespace lockstep::backtest {
namespace {

using observe::Observation;

struct Row {
  Observation run;
  std::string kind;
};

struct Predictions {
  std::vector<double> errors;  // ln(P50 / measured)
  int below_p50 = 0, below_p95 = 0;

  void add(const observe::Belief& belief, double log_ratio) {
    errors.push_back(belief.mean - log_ratio);
    below_p50 += log_ratio <= belief.mean;
    below_p95 += log_ratio <= std::log(belief.p95());
  }
  AdaptSummary summary() const {
    const auto share = [&](int count) {
      return errors.empty() ? 0 : count / static_cast<double>(errors.size());
    };
    return {summarize(errors), share(below_p50), share(below_p95)};
  }
};

// The first k of a shuffle, in the order of the rows.
std::vector<std::size_t> drawn(std::size_t rows, std::size_t k, const RandomStream& stream,
                               std::uint64_t draw) {
  std::vector<std::size_t> order(rows);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = 0; i < k; ++i)
    std::swap(order[i], order[i + stream.below(rows - i, draw * observe::kMostRuns + i)]);
  order.resize(k);
  std::ranges::sort(order);
  return order;
}

using Sources = std::vector<std::pair<std::string, std::vector<Row>>>;

AdaptFigures figures_of(const Sources& sources, const observe::Prior& prior, std::size_t k,
                        const AdaptProtocol& protocol) {
  AdaptFigures figures;
  Predictions all;
  std::map<std::string, Predictions> kinds;
  for (const auto& [name, rows] : sources) {
    if (rows.size() <= k + 1) {
      figures.left_out.emplace_back(name, static_cast<int>(rows.size()));
      continue;
    }
    const RandomStream stream(protocol.seed, strf("adapt %zu %s", k, name.c_str()));
    Predictions here;
    for (int draw = 0; draw < (k == 0 ? 1 : protocol.draws); ++draw) {
      const auto known = drawn(rows.size(), k, stream, static_cast<std::uint64_t>(draw));
      std::vector<Observation> given;
      for (const std::size_t i : known) given.push_back(rows[i].run);
      const observe::Posterior posterior(prior, std::move(given));
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (std::ranges::binary_search(known, i)) continue;
        const observe::Belief belief = posterior.of(rows[i].run.features);
        for (Predictions* sum : {&all, &here, &kinds[rows[i].kind]})
          sum->add(belief, rows[i].run.log_ratio);
      }
    }
    figures.sources.emplace_back(name, here.summary());
  }
  figures.all = all.summary();
  for (const auto& [kind, sum] : kinds)
    if (!kind.empty()) figures.kinds.emplace_back(kind, sum.summary());
  return figures;
}

// Rows of each source, in the order of the file.
template <class Take>
Sources sources_of(const Scores& scores, Take take) {
  Sources sources;
  for (const ScoredRun& row : scores.runs) {
    const std::optional<Row> taken = take(row);
    if (!taken) continue;
    const std::string& name = row.run->text("source");
    auto found = std::ranges::find(sources, name, &Sources::value_type::first);
    if (found == sources.end()) found = sources.insert(found, {name, {}});
    found->second.push_back(*taken);
  }
  return sources;
}

std::optional<Row> time_row(const ScoredRun& row) {
  if (!row.in_headline) return std::nullopt;
  return Row{{observe::time_features(row.request, row.price.time), -*row.time_error}, ""};
}

std::optional<Row> memory_row(const ScoredRun& row) {
  if (!row.memory_error || row.excluded_memory) return std::nullopt;
  return Row{
      {observe::memory_features(row.request, row.price, reading_of(*row.run)), -*row.memory_error},
      row.run->text("mem_kind")};
}

}  // namespace

std::vector<AdaptScore> adapt(const Scores& scores, const AdaptProtocol& protocol) {
  const Sources timed = sources_of(scores, time_row), sized = sources_of(scores, memory_row);
  std::vector<AdaptScore> made;
  for (const int k : protocol.known) {
    const auto known = static_cast<std::size_t>(k);
    made.push_back({k, figures_of(timed, observe::time_prior(), known, protocol),
                    figures_of(sized, observe::memory_prior(), known, protocol)});
  }
  return made;
}

}  // namespace lockstep::backtest

#include "cli/simulate/residual_report.h"

#include <algorithm>
#include <cmath>
#include <ostream>

#include "cli/table.h"

namespace lockstep::cli {
namespace {

constexpr double kWorthARow = 1e-3;  // of the step

std::string with_sign(Seconds time) {
  if (time.value == 0) return "0";
  return (time.value > 0 ? "+" : "-") + to_text(Seconds{std::abs(time.value)});
}

// Of the largest cause's difference would be no whole; of the step it is.
std::string share_text(Seconds difference, const sim::Residuals& residuals) {
  return strf("%+.1f %%", 100 * difference.value / residuals.measured.value);
}

std::vector<std::string> cells(const std::string& name, const sim::Residual& row,
                               const sim::Residuals& residuals) {
  return {name, to_text(row.predicted), to_text(row.measured), with_sign(row.difference()),
          share_text(row.difference(), residuals)};
}

}  // namespace

void print_residuals(const sim::Residuals& residuals, const std::string& file, Output& output) {
  output.out << "\nagainst " << file << ", its step of median length, mean of its ranks\n\n";
  Rows rows = {{"", "predicted", "measured", "difference", "of the step"}};
  for (int cause = 0; cause < sim::kNumCauses; ++cause) {
    const sim::Residual sum = residuals.total(static_cast<sim::Cause>(cause));
    if (sum.predicted == Seconds{} && sum.measured == Seconds{}) continue;
    rows.push_back(cells(sum.what, sum, residuals));
    for (const sim::Residual& row : residuals.rows) {
      const double longest = std::max(row.predicted.value, row.measured.value);
      if (row.cause == sum.cause && longest >= kWorthARow * residuals.measured.value)
        rows.push_back(cells("  " + row.what, row, residuals));
    }
  }
  sim::Residual step{{}, "step", residuals.predicted, residuals.measured};
  rows.push_back(cells("step", step, residuals));
  print_table(output.out, rows, "lrrrr");
  output.out << strf("\nthe prediction is off by %+.2f %%\n", 100 * residuals.error());
}

Json residuals_json(const sim::Residuals& residuals) {
  Json rows = Json::array();
  for (const sim::Residual& row : residuals.rows)
    rows.push(Json::object({{"cause", to_text(row.cause)},
                            {"what", row.what},
                            {"predicted", row.predicted.value},
                            {"measured", row.measured.value}}));
  return Json::object({{"predicted", residuals.predicted.value},
                       {"measured", residuals.measured.value},
                       {"error", residuals.error()},
                       {"rows", std::move(rows)}});
}

}  // namespace lockstep::cli

#include "lockstep/backtest/rows_csv.h"

#include <optional>

#include "lockstep/base/units.h"

namespace lockstep::backtest {
namespace {

std::string number(std::optional<double> value) { return value ? strf("%.6g", *value) : ""; }

std::string gigabytes(std::optional<double> bytes) {
  return bytes ? strf("%.2f", *bytes / 1e9) : "";
}

std::string quoted(const std::string& text) {
  std::string made = "\"";
  for (const char c : text) made += c == '"' ? std::string("\"\"") : std::string(1, c);
  return made + "\"";
}

void add_line(const ScoredRun& row, std::string& csv) {
  const bool is_priced = row.not_priced.empty();
  const auto priced = [&](double value) {
    return is_priced ? std::optional<double>(value) : std::nullopt;
  };
  const cost::Price& price = row.price;
  csv += row.run->text("id") + "," + quoted(row.run->text("source")) +
         (row.run->is_heldout() ? ",held out," : ",calibration,") + row.run->text("outcome") +
         (row.in_headline ? ",1," : ",0,") + number(row.seconds) + "," +
         number(priced(price.time.total())) + "," + number(row.time_error);
  for (const cost::StepTerm& term : cost::kStepTerms)
    csv += "," + number(priced(price.time.*term.seconds));
  csv += "," + gigabytes(row.bytes);
  for (const double bytes :
       {price.memory.allocated(), reserved_bytes(price.memory), shown_bytes(price.memory)})
    csv += "," + gigabytes(priced(bytes));
  csv += "," + number(priced(price.fits ? 1 : 0)) + ",";
  const std::string& reason = row.excluded.empty() ? row.not_priced : row.excluded;
  csv += (reason.empty() ? "" : quoted(reason)) + "\n";
}

}  // namespace

std::string rows_csv(const Scores& scores) {
  std::string csv = "id,source,split,outcome,counted,measured_s,predicted_s,error";
  for (const cost::StepTerm& term : cost::kStepTerms) csv += strf(",%s_s", term.name);
  csv += ",measured_gb,allocated_gb,reserved_gb,shown_gb,fits,reason\n";
  for (const ScoredRun& row : scores.runs) add_line(row, csv);
  return csv;
}

}  // namespace lockstep::backtest

// The baseline a planner has to beat: one constant utilisation per family of devices, width of products and
// whether blocks are made again, the median over calibration rows. FLOPs count full attention, against the
// 16-bit peak.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cost/analytic/price.h"

namespace lockstep::backtest {

class Baseline {
 public:
  void add(const cost::PriceRequest& request, double seconds);  // a calibration row
  bool empty() const { return utilisations_.empty(); }
  // Takes medians, or the constants of the published calibration rows when none were added.
  void finish();
  // Seconds of a step; nothing for a class without calibration rows.
  std::optional<double> predict(const cost::PriceRequest& request) const;
  const std::map<std::string, double>& constants() const { return constants_; }

 private:
  std::map<std::string, std::vector<double>> utilisations_;
  std::map<std::string, double> constants_;
};

}  // namespace lockstep::backtest

// How far prices were off on published runs that nobody had looked at while the model was made:
// what a new source should expect. Others keep the rows, so that they stay unseen, and priced them
// once, at 4b81d16; these figures stand here alone. Errors are ln(predicted / measured) in percent.
#pragma once

#include <array>

namespace lockstep::backtest {

struct UnseenSet {
  int runs, sources, timed, sized;  // of all runs, those that count for step time and for memory
  double median, p90, constant;     // of step time; `constant`: of constant utilisation
  double memory;                    // median
  int verdicts, right, missed, false_alarms;  // on running out of memory
};

inline constexpr std::array<UnseenSet, 2> kUnseen = {
    {{299, 8, 195, 86, 20.9, 38.9, 20.5, 25.3, 77, 67, 0, 10},
     {404, 16, 235, 116, 24.6, 52.4, 38.9, 20.0, 126, 113, 5, 8}}};

}  // namespace lockstep::backtest

#include "lockstep/draw/axis.h"

#include <cmath>

#include "lockstep/base/check.h"

namespace lockstep::draw {
namespace {

struct Unit {
  double seconds;
  const char* name;
};
constexpr Unit kUnits[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};

Unit unit_for(double span) {
  for (const Unit& unit : kUnits)
    if (span >= unit.seconds) return unit;
  return kUnits[3];
}

double round_step(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

}  // namespace

Axis axis_of(const Figure& figure, int most) {
  LS_CHECK(most >= 1, "an axis without room for a mark");
  const double span = figure.makespan.value;
  if (span <= 0) return {{{Seconds{}, "0"}}, figure.time_unit};
  const Unit unit = figure.time_unit == "s" ? unit_for(span) : Unit{1, figure.time_unit.c_str()};
  const double step = round_step(span / unit.seconds / most);
  Axis axis = {{}, unit.name};
  const int last = static_cast<int>(span / unit.seconds / step * (1 + 1e-9));
  for (int i = 0; i <= last; ++i)
    axis.ticks.push_back({{std::min(i * step * unit.seconds, span)}, strf("%.6g", i * step)});
  return axis;
}

}  // namespace lockstep::draw

#include "lockstep/draw/figure.h"

#include <algorithm>
#include <cmath>

#include "lockstep/draw/svg_text.h"

namespace lockstep::draw {
namespace {

struct InkRow {
  char letter;
  std::string_view words;
};

constexpr InkRow kInks[kNumInks] = {
    {'F', "forward"},   {'I', "input gradient"}, {'W', "weight gradient"}, {'B', "backward"},
    {'R', "recompute"}, {'G', "gather"},         {'S', "reduce"},          {'T', "transfer"},
    {'U', "update"},    {'O', "other"}};

std::string with_unit(double number, std::string unit) {
  constexpr std::string_view kMany = "microbatches";
  const std::string text = svg_number(number);
  if (text == "1" && unit.starts_with(kMany)) unit.erase(kMany.size() - 2, 2);
  return unit.empty() ? text : text + " " + unit;
}

}  // namespace

char letter(Ink ink) { return kInks[static_cast<std::size_t>(ink)].letter; }
std::string_view to_text(Ink ink) { return kInks[static_cast<std::size_t>(ink)].words; }

Seconds work(const Figure& figure) {
  Seconds most;
  for (const Band& band : figure.bands) {
    Seconds sum;
    for (const Bar& bar : band.lanes.front().bars) sum += bar.end - bar.start;
    most = std::max(most, sum);
  }
  return most;
}

Seconds bubble(const Figure& figure) {
  const Seconds idle = figure.makespan - work(figure);
  const bool is_rounding = std::abs(idle.value) < 1e-9 * figure.makespan.value;
  return is_rounding ? Seconds{} : idle;
}

double peak(const Band& band) {
  double most = 0;
  for (const Level& level : band.memory) most = std::max(most, level.held);
  return most;
}

double peak(const Figure& figure) {
  double most = 0;
  for (const Band& band : figure.bands) most = std::max(most, peak(band));
  return most;
}

std::string time_text(const Figure& figure, Seconds time) {
  return figure.time_unit == "s" ? to_text(time) : with_unit(time.value, figure.time_unit);
}

std::string memory_text(const Figure& figure, double held) {
  const bool is_complete = figure.memory_unit == "B";
  return is_complete ? held_text(figure, held) : with_unit(held, figure.memory_unit);
}

std::string held_text(const Figure& figure, double held) {
  return figure.memory_unit == "B" ? to_text(Bytes{std::llround(held)}) : svg_number(held);
}

std::string summary(const Figure& figure) {
  const double share =
      figure.makespan.value > 0 ? 100 * bubble(figure).value / figure.makespan.value : 0;
  return "makespan " + time_text(figure, figure.makespan) + ", bubble " +
         time_text(figure, bubble(figure)) + strf(" (%.1f %%)", share) + ", peak " +
         memory_text(figure, peak(figure));
}

}  // namespace lockstep::draw

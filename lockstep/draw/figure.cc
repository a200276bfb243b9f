#include "lockstep/draw/figure.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/draw/svg_text.h"

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

// Deals columns to what shares them: inks by chunk, and idle time.
class Dealer {
 public:
  // `part` of the column's time belongs to the run.
  void add(const Run& run, int index, double part) {
    if (part <= 0) return;
    Share& share = find(static_cast<int>(run.ink), run.chunk);
    share.now += part;
    if (part > share.longest) std::tie(share.longest, share.speaker) = std::pair(part, index);
  }

  // Who gets the column; -1: nobody, it is idle.
  int deal() {
    double rest = 1;
    for (const Share& share : shares_) rest -= share.now;
    Share* best = &find(kIdle, 0);
    best->now = rest > kRounding ? rest : 0;
    for (Share& share : shares_)
      if (share.now > 0 && (best->now <= 0 || claim(share) > claim(*best))) best = &share;
    const int speaker = best->speaker;
    const bool is_shared = best->now < 1 - kRounding;
    for (Share& share : shares_) {
      share.missed = is_shared ? claim(share) - (&share == best ? 1 : 0) : 0;
      share.now = share.longest = 0;
    }
    return speaker;
  }

 private:
  static constexpr int kIdle = -1;
  static constexpr double kRounding = 1e-9;

  struct Share {
    int ink;
    int chunk;
    double now = 0;      // of this column
    double missed = 0;   // of columns before it that others got
    double longest = 0;  // part of one run
    int speaker = -1;    // that run
  };
  static double claim(const Share& share) { return share.now + share.missed; }

  Share& find(int ink, int chunk) {
    for (Share& share : shares_)
      if (share.ink == ink && share.chunk == chunk) return share;
    return shares_.emplace_back(Share{.ink = ink, .chunk = chunk});
  }

  std::vector<Share> shares_;
};

// Blue, orange, vermilion, purple, yellow and green after Okabe and Ito, whose palette colour-blind
// readers can tell apart, on paper moved in lightness until the inks of compute also differ in grey
// (L* of F 34, B 54, I 73, W 85).
constexpr InkLook kInks[kNumInks] = {
    {'F', "forward", {0x00, 0x54, 0x8c}, true, {{25, 24}, {74, 110}}, '-'},
    {'I', "input gradient", {0xf0, 0xa5, 0x00}, false, {{214, 178}, {222, 186}}, '~'},
    {'W', "weight gradient", {0xa8, 0xdf, 0xc9}, false, {{115, 79}, {158, 194}}, '+'},
    {'B', "backward", {0xd5, 0x5e, 0x00}, false, {{166, 130}, {209, 173}}, '='},
    {'R', "recompute", {0xa8, 0x57, 0x8a}, true, {{132, 96}, {175, 139}}, ':'},
    {'G', "gather", {0xf0, 0xe4, 0x42}, false, {{227, 185}, {227, 185}}, '<'},
    {'S', "reduce", {0x00, 0x9e, 0x73}, false, {{35, 29}, {35, 29}}, '>'},
    {'T', "transfer", {0x8a, 0x8a, 0x8a}, false, {{245, 243}, {245, 243}}, '_'},
    {'U', "update", {0x30, 0x30, 0x30}, true, {{238, 240}, {238, 240}}, '#'},
    {'O', "other", {0xb8, 0xb8, 0xb8}, false, {{250, 247}, {250, 247}}, '*'},
};

std::size_t shown_every(std::size_t count, int most) {
  return (count + static_cast<std::size_t>(most) - 1) / static_cast<std::size_t>(most);
}

std::string with_unit(double number, std::string unit) {
  constexpr std::string_view kMany = "microbatches";
  const std::string text = svg_number(number);
  if (text == "1" && unit.starts_with(kMany)) unit.erase(kMany.size() - 2, 2);
  return unit.empty() ? text : text + " " + unit;
}

}  // namespace

const InkLook& look_of(Ink ink) { return kInks[static_cast<std::size_t>(ink)]; }

void divide_times(Figure& figure, double by) {
  figure.makespan.value /= by;
  const auto divide = [by](std::vector<Bar>& bars) {
    for (Bar& bar : bars) bar.start.value /= by, bar.end.value /= by;
  };
  for (Band& band : figure.bands) {
    for (Lane& lane : band.lanes) divide(lane.bars);
    divide(band.parts);
    for (Level& level : band.memory) level.time.value /= by;
  }
}

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
  return "step time " + time_text(figure, figure.makespan) + ", bubble " +
         time_text(figure, bubble(figure)) + strf(" (%.1f %%)", share) + ", peak " +
         memory_text(figure, peak(figure));
}

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

std::vector<Run> runs(const std::vector<Bar>& bars) {
  std::vector<Run> found;
  for (const Bar& bar : bars) {
    Run* last = found.empty() ? nullptr : &found.back();
    const bool belongs = last != nullptr && last->end == bar.start && last->ink == bar.ink &&
                         last->microbatch == bar.microbatch && last->chunk == bar.chunk &&
                         bar.microbatch >= 0;
    if (belongs)
      last->end = bar.end;
    else
      found.push_back({bar.start, bar.end, bar.ink, bar.microbatch, bar.chunk});
  }
  return found;
}

std::vector<int> dealt(std::span<const Run> runs, Seconds span, int columns) {
  std::vector<int> result(columns, -1);
  Dealer dealer;
  const double width = span.value / columns;
  std::size_t next = 0;  // first run that may reach into the column
  for (int column = 0; column < columns; ++column) {
    const double begin = column * width, end = (column + 1) * width;
    while (next < runs.size() && runs[next].end.value <= begin) ++next;
    for (std::size_t i = next; i < runs.size() && runs[i].start.value < end; ++i) {
      const double part = std::min(end, runs[i].end.value) - std::max(begin, runs[i].start.value);
      dealer.add(runs[i], static_cast<int>(i), part / width);
    }
    result[column] = dealer.deal();
  }
  return result;
}

std::vector<std::size_t> shown(std::size_t count, int most) {
  const std::size_t every = std::max<std::size_t>(1, shown_every(count, most));
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < count; i += every) result.push_back(i);
  if (!result.empty() && result.back() + 1 != count) result.push_back(count - 1);
  return result;
}

std::string shown_text(std::size_t count, int most) {
  const std::size_t every = shown_every(count, most);
  if (every <= 1) return "";
  const std::string ordinal = every == 2   ? "2nd"
                              : every == 3 ? "3rd"
                                           : std::to_string(every) + "th";
  return "every " + ordinal + " of " + std::to_string(count) + " pipeline ranks, and the last";
}

int chunks(const Figure& figure) {
  int most = 0;
  for (const Band& band : figure.bands)
    for (const Lane& lane : band.lanes)
      for (const Bar& bar : lane.bars) most = std::max(most, bar.chunk);
  return most + 1;
}

std::vector<Ink> inks(const Figure& figure) {
  std::set<Ink> found;
  for (const Band& band : figure.bands)
    for (const Lane& lane : band.lanes)
      for (const Bar& bar : lane.bars) found.insert(bar.ink);
  return {found.begin(), found.end()};
}

}  // namespace lockstep::draw

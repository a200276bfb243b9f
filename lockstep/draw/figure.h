// One step as a picture, before it has a form: what ran when on every pipeline rank, and what each
// of them held. terminal.h, svg.h and trace.h give it a form and add nothing of their own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/ids.h"
#include "lockstep/base/units.h"

namespace lockstep::draw {

// What a bar shows: its colour, and its letter where there is no colour.
enum class Ink : std::uint8_t {
  kForward,     // F
  kInputGrad,   // I
  kWeightGrad,  // W
  kBackward,    // B: I and W at once
  kRecompute,   // R
  kGather,      // parameters put together from shards
  kReduce,      // gradients summed
  kTransfer,    // to another pipeline rank, or from it
  kUpdate,      // optimizer
  kOther,
};
inline constexpr int kNumInks = 10;

struct InkLook {
  char letter;             // 'F'
  std::string_view words;  // "forward"
  int rgb[3];              // on paper, of the first chunk
  bool is_dark;            // what stands on it is white
  int terminal[2]
              [2];  // indices into 256 colours: even and odd chunks; of each a base and a shade for
                    // bars that touch one of their own kind
  char filling;     // of a bar without colour
};
const InkLook& look_of(Ink ink);
inline char letter(Ink ink) { return look_of(ink).letter; }
inline std::string_view to_text(Ink ink) { return look_of(ink).words; }

struct Bar {
  Seconds start;  // since the step began
  Seconds end;
  Ink ink = Ink::kOther;
  int microbatch = -1;  // -1: of none; likewise below
  int stage = -1;
  int unit = -1;
  int chunk = 0;     // index of the stage on its pipeline rank; told apart by tint
  std::string name;  // the op itself, for tooltips and traces: "2F0", "gather3"
};

enum class LaneKind : std::uint8_t { kCompute, kCollective, kTransfer };

struct Lane {
  LaneKind kind = LaneKind::kCompute;
  std::string name;       // "compute", "shard", "send to 1"
  std::vector<Bar> bars;  // ascending; none overlaps another or takes no time
};

// From this time on, so much is held. Two levels at one time: the first was held for an instant.
struct Level {
  Seconds time;
  double held = 0;
};

struct Band {
  Coord coord;
  std::vector<Lane> lanes;      // the first is compute, and the only one of its kind
  std::vector<Level> memory;    // ascending by time, from the start of the step
  std::string name = {};        // "rank 3"; empty: the pipeline rank itself
  std::vector<Bar> parts = {};  // of the bars of compute, ascending, where they are known
};

struct Figure {
  std::string title = {};  // whatever the caller calls it, such as the name of the schedule
  std::string shape = {};  // "4 pipeline ranks, 2 chunks, 8 microbatches"
  // "s": times are seconds and written as us, ms, s. Anything else names the unit that times are
  // whole or broken numbers of.
  std::string time_unit = "s";
  // "B": held numbers are bytes and written as MiB, GiB. Anything else names their unit.
  std::string memory_unit = "microbatches";
  Seconds makespan = {};
  std::vector<Band> bands = {};  // one per pipeline rank, or per rank, in order
};

void divide_times(Figure& figure, double by);

// What the heading of a picture says.
Seconds work(const Figure& figure);    // compute of the busiest pipeline rank
Seconds bubble(const Figure& figure);  // what is left of the makespan
double peak(const Band& band);
double peak(const Figure& figure);  // of the pipeline rank that holds most

// "27 F", "3.4 ms"; "4 microbatches", "1.5 GiB"; "4", "1.5 GiB".
std::string time_text(const Figure& figure, Seconds time);
std::string memory_text(const Figure& figure, double held);
std::string held_text(const Figure& figure, double held);
// "makespan 33 F, bubble 9 F (27.3 %), peak 4 microbatches".
std::string summary(const Figure& figure);

// Round marks on the axis of time.
struct Tick {
  Seconds time;
  std::string label;  // without unit
};

struct Axis {
  std::vector<Tick> ticks;  // ascending from 0; the last is not after the makespan
  std::string unit;         // "ms", or the figure's own; may be empty
};

// Steps of 1, 2 or 5 times a power of ten, so that there are at most `most` after the first.
// REQUIRES: most >= 1.
Axis axis_of(const Figure& figure, int most);

// Reductions of a figure that does not fit: bars that belong together, bars per column, pipeline
// ranks that are shown.

// Bars that touch and show the same pass: the units of one stage and microbatch. They share a
// label.
struct Run {
  Seconds start;
  Seconds end;
  Ink ink = Ink::kOther;
  int microbatch = -1;
  int chunk = 0;
};
std::vector<Run> runs(const std::vector<Bar>& bars);

// For each of `columns` equal parts of [0, span): the run that speaks for it, or -1 for idle. A
// column that several share goes to the one with the most time in it, plus what it missed in shared
// columns before; so over many columns each ink, chunk and idle time has its share, however narrow
// its bars. A column that one has alone is that one's, and what was missed before it is forgotten.
// REQUIRES: span > 0 where there are runs; runs ascend and do not overlap.
std::vector<int> dealt(std::span<const Run> runs, Seconds span, int columns);

// All of `count` pipeline ranks, or every second (third, ...) and the last, at most `most` + 1.
std::vector<std::size_t> shown(std::size_t count, int most);
// "every 4th of 128 pipeline ranks, and the last"; empty when all are shown.
std::string shown_text(std::size_t count, int most);

int chunks(const Figure& figure);             // most of any bar
std::vector<Ink> inks(const Figure& figure);  // of its bars, each once

}  // namespace lockstep::draw

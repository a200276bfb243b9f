// One step as a picture, before it has a form: what ran when on every coordinate, and what each of
// them held. terminal.h, svg.h and trace.h give it a form and add nothing of their own.
#pragma once

#include <cstdint>
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
  kTransfer,    // to another coordinate, or from it
  kUpdate,      // optimizer
  kOther,
};
inline constexpr int kNumInks = 10;

char letter(Ink ink);               // 'F'
std::string_view to_text(Ink ink);  // "forward"

struct Bar {
  Seconds start;  // since the step began
  Seconds end;
  Ink ink = Ink::kOther;
  int microbatch = -1;  // -1: of none; likewise below
  int stage = -1;
  int unit = -1;
  int chunk = 0;     // index of the stage on its coordinate; told apart by tint
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
  std::vector<Lane> lanes;    // the first is compute, and the only one of its kind
  std::vector<Level> memory;  // ascending by time, from the start of the step
  std::string name = {};      // "rank 3"; empty: the coordinate itself
};

struct Figure {
  std::string title;  // whatever the caller calls it, such as the name of the schedule
  std::string shape;  // "4 coordinates, 2 chunks, 8 microbatches"
  // "s": times are seconds and written as us, ms, s. Anything else names the unit that times are
  // whole or broken numbers of.
  std::string time_unit = "s";
  // "B": held numbers are bytes and written as MiB, GiB. Anything else names their unit.
  std::string memory_unit = "microbatches";
  Seconds makespan;
  std::vector<Band> bands;  // one per coordinate, or per rank, in order
};

// What the heading of a picture says.
Seconds work(const Figure& figure);    // compute of the busiest coordinate
Seconds bubble(const Figure& figure);  // what is left of the makespan
double peak(const Band& band);
double peak(const Figure& figure);  // of the coordinate that holds most

// "27 F", "3.4 ms"; "4 microbatches", "1.5 GiB"; "4", "1.5 GiB".
std::string time_text(const Figure& figure, Seconds time);
std::string memory_text(const Figure& figure, double held);
std::string held_text(const Figure& figure, double held);
// "makespan 33 F, bubble 9 F (27.3 %), peak 4 microbatches".
std::string summary(const Figure& figure);

}  // namespace lockstep::draw

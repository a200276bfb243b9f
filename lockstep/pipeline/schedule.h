// A pipeline schedule as plain data: for each pipeline rank, its compute in order, at the
// grain of stages. Communication, ZeRO and the optimizer are added by lowering (program/lower.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/ids.h"
#include "lockstep/base/result.h"

namespace lockstep::pipeline {

enum class PassKind : std::uint8_t {
  kForward,     // F
  kBackward,    // B: the next two at once
  kInputGrad,   // I: gradient of the stage's input
  kWeightGrad,  // W: gradients of its weights
};

struct Pass {
  PassKind kind = PassKind::kForward;
  Stage stage = {};
  Microbatch microbatch = {};
  bool operator==(const Pass&) const = default;
};

using Timetable = std::vector<std::vector<Pass>>;  // by pipeline rank

// Which pipeline rank runs a stage.
enum class Placement : std::uint8_t {
  kLoop,  // stage s on pipeline rank s mod coords
  kV,     // every second chunk runs backwards: coords-1-(s mod coords)
};

struct Shape {
  int coords = 1;
  int chunks = 1;  // stages per pipeline rank
  int microbatches = 1;

  int stages() const { return coords * chunks; }
  // Of a table by stage and microbatch.
  int index(Stage stage, Microbatch mb) const { return stage.value * microbatches + mb.value; }
  bool operator==(const Shape&) const = default;
};

// kOutOfRange unless all three are at least 1 and stages x microbatches is at most 2^24, far above
// any run and far below what overflows.
Result<void> check_shape(const Shape& shape);

constexpr Coord coord_of(Placement placement, Stage stage, int coords) {
  const int place = stage.value % coords;
  const bool mirrored = placement == Placement::kV && stage.value / coords % 2 == 1;
  return {mirrored ? coords - 1 - place : place};
}

// Immutable; any thread may read it.
class Schedule {
 public:
  // `timetable[c]` belongs to pipeline rank c. Refuses one that does not run every stage and
  // microbatch exactly once forward and once backward (B, or I before W) on the stage's own
  // pipeline rank, that runs I, W or B of a stage out of microbatch order, or in which a pass can
  // never become ready even if communication takes no time; the error names the pass or the circle.
  static Result<Schedule> create(Shape shape, Placement placement, Timetable timetable);

  const Shape& shape() const { return shape_; }
  Placement placement() const { return placement_; }
  std::span<const Pass> passes(Coord coord) const;

  bool operator==(const Schedule&) const = default;

 private:
  Schedule(Shape shape, Placement placement, Timetable timetable)
      : shape_(shape), placement_(placement), timetable_(std::move(timetable)) {}

  Shape shape_;
  Placement placement_ = Placement::kLoop;
  Timetable timetable_;
};

// Why create() would refuse a timetable, if it would.
struct ScheduleFault {
  Error error;
  std::optional<Pass> pass;  // the one at fault; a missing pass is in no list
};
std::optional<ScheduleFault> find_fault(const Shape& shape, Placement placement,
                                        const Timetable& timetable);

std::string to_text(const Pass& pass);          // "2F0": stage, kind, microbatch
std::string to_text(const Schedule& schedule);  // a line per pipeline rank, joined by commas

}  // namespace lockstep::pipeline

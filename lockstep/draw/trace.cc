#include "lockstep/draw/trace.h"

#include <cmath>
#include <cstdint>

#include "lockstep/base/json.h"

namespace lockstep::draw {
namespace {

class Writer {
 public:
  explicit Writer(const Figure& figure)
      : figure_(figure), nanoseconds_(figure.time_unit == "s" ? 1e9 : 1e6) {}

  std::string write() {
    for (const Band& band : figure_.bands) {
      describe(band);
      for (const Lane& lane : band.lanes) draw(lane, process(band));
      count(band);
    }
    Json about = Json::object({{"title", figure_.title},
                               {"shape", figure_.shape},
                               {"summary", summary(figure_)},
                               {"time_unit", figure_.time_unit},
                               {"memory_unit", figure_.memory_unit}});
    if (figure_.time_unit != "s")
      about.set("scale", "1 " + figure_.time_unit + " is shown as 1 ms");
    return Json::object({{"displayTimeUnit", "ms"},
                         {"otherData", std::move(about)},
                         {"traceEvents", std::move(events_)}})
               .dump() +
           "\n";
  }

 private:
  // From 1: viewers take process and thread 0 for the idle task of a kernel.
  static int process(const Band& band) { return band.coord.value + 1; }

  std::int64_t at(Seconds time) const { return std::llround(time.value * nanoseconds_); }
  static Json microseconds(std::int64_t nanoseconds) {
    return static_cast<double>(nanoseconds) / 1e3;
  }

  Json event(const char* phase, int process, int thread, std::int64_t nanoseconds, std::string name,
             Json args) const {
    return Json::object({{"ph", phase},
                         {"pid", process},
                         {"tid", thread},
                         {"ts", microseconds(nanoseconds)},
                         {"name", std::move(name)},
                         {"args", std::move(args)}});
  }

  void describe(const Band& band) {
    const std::string name = "coordinate " + std::to_string(band.coord.value);
    events_.push(event("M", process(band), 0, 0, "process_name", Json::object({{"name", name}})));
    events_.push(event("M", process(band), 0, 0, "process_sort_index",
                       Json::object({{"sort_index", band.coord.value}})));
  }

  void draw(const Lane& lane, int process) {
    ++thread_;
    events_.push(
        event("M", process, thread_, 0, "thread_name", Json::object({{"name", lane.name}})));
    events_.push(event("M", process, thread_, 0, "thread_sort_index",
                       Json::object({{"sort_index", thread_}})));
    for (const Bar& bar : lane.bars) {
      Json args = Json::object();
      if (bar.microbatch >= 0) args.set("microbatch", bar.microbatch);
      if (bar.stage >= 0) args.set("stage", bar.stage).set("chunk", bar.chunk);
      if (bar.unit >= 0) args.set("unit", bar.unit);
      Json drawn = event("X", process, thread_, at(bar.start), bar.name, std::move(args));
      drawn.set("dur", microseconds(at(bar.end) - at(bar.start)));
      drawn.set("cat", to_text(bar.ink));
      events_.push(std::move(drawn));
    }
  }

  void count(const Band& band) {
    const std::string unit = figure_.memory_unit == "B" ? "bytes" : figure_.memory_unit;
    for (const Level& level : band.memory)
      events_.push(
          event("C", process(band), 0, at(level.time), "held", Json::object({{unit, level.held}})));
  }

  const Figure& figure_;
  double nanoseconds_;  // per unit of the figure's time
  int thread_ = 0;      // unique over all processes
  Json events_ = Json::array();
};

}  // namespace

std::string trace(const Figure& figure) { return Writer(figure).write(); }

}  // namespace lockstep::draw

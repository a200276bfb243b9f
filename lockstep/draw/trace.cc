#include "lockstep/draw/trace.h"

#include <cmath>
#include <cstdint>

#include "lockstep/base/json.h"

namespace lockstep::draw {
namespace {

class Writer {
 public:
  explicit Writer(std::span<const Figure> figures) : figures_(figures) {}

  std::string write() {
    Json abouts = Json::array();
    for (const Figure& figure : figures_) {
      nanoseconds_ = figure.time_unit == "s" ? 1e9 : 1e6;
      for (const Band& band : figure.bands) {
        ++process_;
        describe(figure, band);
        for (const Lane& lane : band.lanes) {
          draw(lane);
          if (&lane == &band.lanes.front()) draw(band.parts);  // inside of its bars
        }
        count(figure, band);
      }
      abouts.push(about(figure));
    }
    Json other =
        figures_.size() == 1 ? abouts.items()[0] : Json::object({{"figures", std::move(abouts)}});
    return Json::object({{"displayTimeUnit", "ms"},
                         {"otherData", std::move(other)},
                         {"traceEvents", std::move(events_)}})
               .dump() +
           "\n";
  }

 private:
  static Json about(const Figure& figure) {
    Json about = Json::object({{"title", figure.title},
                               {"shape", figure.shape},
                               {"summary", summary(figure)},
                               {"time_unit", figure.time_unit},
                               {"memory_unit", figure.memory_unit}});
    if (figure.time_unit != "s") about.set("scale", "1 " + figure.time_unit + " is shown as 1 ms");
    return about;
  }

  std::int64_t at(Seconds time) const { return std::llround(time.value * nanoseconds_); }
  static Json microseconds(std::int64_t nanoseconds) {
    return static_cast<double>(nanoseconds) / 1e3;
  }

  Json event(const char* phase, int thread, std::int64_t nanoseconds, std::string name,
             Json args) const {
    return Json::object({{"ph", phase},
                         {"pid", process_},
                         {"tid", thread},
                         {"ts", microseconds(nanoseconds)},
                         {"name", std::move(name)},
                         {"args", std::move(args)}});
  }

  void describe(const Figure& figure, const Band& band) {
    const std::string place =
        band.name.empty() ? "pipeline rank " + std::to_string(band.coord.value) : band.name;
    const std::string name = figures_.size() == 1 ? place : figure.title + ": " + place;
    events_.push(event("M", 0, 0, "process_name", Json::object({{"name", name}})));
    events_.push(
        event("M", 0, 0, "process_sort_index", Json::object({{"sort_index", process_ - 1}})));
  }

  void draw(const Lane& lane) {
    ++thread_;
    events_.push(event("M", thread_, 0, "thread_name", Json::object({{"name", lane.name}})));
    events_.push(
        event("M", thread_, 0, "thread_sort_index", Json::object({{"sort_index", thread_}})));
    draw(lane.bars);
  }

  void draw(const std::vector<Bar>& bars) {
    for (const Bar& bar : bars) {
      Json args = Json::object();
      if (bar.microbatch >= 0) args.set("microbatch", bar.microbatch);
      if (bar.stage >= 0) args.set("stage", bar.stage).set("virtual_stage", bar.chunk);
      if (bar.unit >= 0) args.set("unit", bar.unit);
      Json drawn = event("X", thread_, at(bar.start), bar.name, std::move(args));
      drawn.set("dur", microseconds(at(bar.end) - at(bar.start)));
      drawn.set("cat", to_text(bar.ink));
      events_.push(std::move(drawn));
    }
  }

  void count(const Figure& figure, const Band& band) {
    const std::string unit = figure.memory_unit == "B" ? "bytes" : figure.memory_unit;
    for (const Level& level : band.memory)
      events_.push(event("C", 0, at(level.time), "held", Json::object({{unit, level.held}})));
  }

  const std::span<const Figure> figures_;
  double nanoseconds_ = 1;  // per unit of the figure's time
  // From 1: viewers take process and thread 0 for the idle task of a kernel.
  int process_ = 0;
  int thread_ = 0;  // unique over all processes
  Json events_ = Json::array();
};

}  // namespace

std::string trace(const Figure& figure) { return trace(std::span(&figure, 1)); }

std::string trace(std::span<const Figure> figures) { return Writer(figures).write(); }

}  // namespace lockstep::draw

#include "cli/train/run_trace.h"

#include <utility>

#include "cli/simulate/timing.h"
#include "cli/simulate/workload.h"
#include "cli/text_file.h"
#include "lockstep/base/check.h"
#include "lockstep/cost/program_bytes.h"
#include "lockstep/draw/figure_of.h"
#include "lockstep/draw/trace.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/spec/step_sizes.h"

namespace lockstep::cli {
namespace {

void scale(draw::Figure& figure, double factor) {
  figure.makespan = figure.makespan * factor;
  for (draw::Band& band : figure.bands) {
    for (draw::Lane& lane : band.lanes)
      for (draw::Bar& bar : lane.bars) {
        bar.start = bar.start * factor;
        bar.end = bar.end * factor;
      }
    for (draw::Level& level : band.memory) level.time = level.time * factor;
  }
}

Result<draw::Figure> predicted_figure(const RunFiles& files, const spec::Spec& spec,
                                      Seconds measured) {
  SimulateRequest request = request_of(spec);
  request.calibration = files.calibration;
  const auto timing = Timing::create(request);
  if (!timing.ok()) return timing.error();
  const auto timed = timing->time(request.entrants.front());
  if (!timed.ok()) return timed.error();
  draw::Figure figure = timed->figure;
  figure.title = "predicted";
  if (request.calibration) return figure;
  scale(figure, measured.value / timed->makespan.value);
  figure.time_unit = "s";
  figure.title = "predicted by FLOPs";
  return figure;
}

}  // namespace

Result<std::vector<std::string>> write_run_files(const RunFiles& files, const spec::Spec& spec,
                                                 const program::Program& program,
                                                 const cost::RunTimeline& measured) {
  std::vector<std::string> written;
  if (!files.timeline.empty()) {
    if (auto done = write_text(files.timeline, write_timeline(measured)); !done.ok())
      return done.error();
    written.push_back(files.timeline);
  }
  if (files.trace.empty()) return written;
  const program::StepTimeline& step = measured.steps.back();
  Result<model::Model> model = model::describe(spec.model);
  if (!model.ok()) return model.error();
  draw::Figure run = draw::figure_of(
      program, step, cost::program_bytes(*model, program.step, spec::step_sizes(spec)));
  run.title = join_parts("measured, step ", step.step + 1);
  Result<draw::Figure> predicted = predicted_figure(files, spec, run.makespan);
  if (!predicted.ok()) return predicted.error();
  const std::vector<draw::Figure> both = {*std::move(predicted), std::move(run)};
  if (auto done = write_text(files.trace, draw::trace(both)); !done.ok()) return done.error();
  written.push_back(files.trace);
  return written;
}

}  // namespace lockstep::cli

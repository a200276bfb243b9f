#include "cli/report/timeline.h"

#include <filesystem>

#include "cli/simulate/timing.h"
#include "cli/text_file.h"
#include "lockstep/cost/measured/run_timeline.h"
#include "lockstep/cost/program_bytes.h"
#include "lockstep/draw/figure_of.h"
#include "lockstep/draw/svg.h"
#include "lockstep/model/arch.h"
#include "lockstep/spec/step.h"

namespace lockstep::cli {
namespace {

constexpr std::size_t kLargestPicture = 3 << 19;  // of a picture: a page is to be handed on

Result<draw::Figure> measured(const spec::Spec& spec, const std::string& name) {
  const std::string text = LS_TRY(read_text(name));
  const cost::RunTimeline timeline = LS_TRY(cost::read_timeline(text, name));
  const model::Model model = LS_TRY(model::describe(spec.model));
  program::StepShape shape = spec::step_shape(model, spec.layout, spec.batch);
  shape.noise = spec.train.noise_scale > 0;
  const program::Program program = LS_TRY(spec::program_for(spec.layout, shape));
  const cost::StepSizes sizes = spec::step_sizes(spec);
  LS_TRY(check_timeline(timeline, program, cost::fingerprint(spec.model, sizes.unit),
                        to_text(spec.layout), name));
  const program::StepTimeline& step = timeline.typical();
  draw::Figure figure =
      draw::figure_of(program, step, cost::program_bytes(model, program.step, sizes));
  figure.title = join_parts("measured, step ", step.step + 1);
  return figure;
}

Result<draw::Figure> predicted(const spec::Spec& spec) {
  const SimulateRequest request = request_of(spec);
  const auto timing = LS_TRY(Timing::create(request));
  draw::Figure figure = LS_TRY(timing.time(request.candidates.front())).figure;
  figure.title = "predicted in proportion to FLOPs; 1 is a mean pipeline rank's forward pass";
  return figure;
}

}  // namespace

Result<std::string> step_picture(const spec::Spec& spec, const std::string& folder) {
  const std::string name = (std::filesystem::path(folder) / "timeline").string();
  const draw::Figure figure =
      LS_TRY(std::filesystem::exists(name) ? measured(spec, name) : predicted(spec));
  std::string picture = draw::svg(figure);
  if (picture.size() <= kLargestPicture) return picture;
  return Error{Code::kOutOfRange,
               join_parts("its picture takes ", to_text(Bytes{std::ssize(picture)}),
                          ", too much for a page: lockstep simulate ", folder,
                          "/config.toml --svg step.svg")};
}

}  // namespace lockstep::cli

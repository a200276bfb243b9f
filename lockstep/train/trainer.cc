#include "lockstep/train/trainer.h"

namespace lockstep::train {

Ending train(Session& session, std::int64_t first, std::int64_t last, const std::atomic<bool>& stop,
             const std::function<void(std::int64_t step, const StepReport& report)>& on_step) {
  const bool skips = session.job().spec.train.on_nonfinite == plan::OnNonfinite::kSkip;
  int skipped = 0;
  for (std::int64_t step = first; step < last; ++step) {
    if (stop) session.workspace().ask_to_stop();
    const StepReport report = session.step(step);
    on_step(step, report);
    skipped = report.updated ? 0 : skipped + 1;
    if (skipped > (skips ? kMostSkipped : 0)) return Ending::kDiverged;
    if (report.stop) return Ending::kStopped;
  }
  return Ending::kFinished;
}

}  // namespace lockstep::train

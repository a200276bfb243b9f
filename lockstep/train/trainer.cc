#include "lockstep/train/trainer.h"

namespace lockstep::train {

Ending train(Session& session, std::int64_t first, std::int64_t last, const std::atomic<bool>& stop,
             const std::function<void(std::int64_t step, const StepReport& report)>& on_step) {
  for (std::int64_t step = first; step < last; ++step) {
    if (stop) session.workspace().ask_to_stop();
    const StepReport report = session.step(step);
    on_step(step, report);
    if (!report.updated) return Ending::kDiverged;
    if (report.stop) return Ending::kStopped;
  }
  return Ending::kFinished;
}

}  // namespace lockstep::train

#include "cli/verbs.h"

namespace lockstep::cli {

const std::vector<Verb>& catalog() {
  static const std::vector<Verb> verbs = {
      init_verb(),       train_verb(),  launch_verb(),     generate_verb(), report_verb(),
      verify_verb(),     audit_verb(),  plan_verb(),       simulate_verb(), calibrate_verb(),
      backtest_verb(),   data_verb(),   checkpoint_verb(), convert_verb(),  model_verb(),
      cluster_verb(),    config_verb(), explain_verb(),    bench_verb(),    doctor_verb(),
      completion_verb(),
  };
  return verbs;
}

}  // namespace lockstep::cli

// Every command, in the order help lists them. A verb is listed when it works: one file, one
// function, one row.
#pragma once

#include <vector>

#include "cli/verb.h"

namespace lockstep::cli {

// Built once; any thread may read it.
const std::vector<Verb>& catalog();

Verb train_verb();                                       // train.cc
Verb generate_verb();                                    // generate.cc
Verb report_verb();                                      // report.cc
Verb plan_verb();                                        // plan.cc
Verb verify_verb();                                      // verify.cc
Verb audit_verb();                                       // audit.cc
Verb simulate_verb();                                    // simulate.cc
Verb calibrate_verb();                                   // calibrate.cc
Verb backtest_verb();                                    // backtest.cc
Verb checkpoint_verb();                                  // checkpoint.cc
Verb config_verb();                                      // config.cc
Verb convert_verb();                                     // convert.cc
Verb explain_verb();                                     // explain.cc
Verb model_verb();                                       // model.cc
Verb cluster_verb();                                     // cluster.cc
Verb data_verb();                                        // files.cc
Verb data_blend_verb(), data_sample_verb();              // runs.cc
Verb launch_verb();                                      // launch.cc
Verb doctor_verb();                                      // doctor.cc
Verb init_verb();                                        // init.cc
Verb completion_verb();                                  // completion.cc
Verb bench_verb(bool with_torch = LOCKSTEP_WITH_TORCH);  // bench.cc

}  // namespace lockstep::cli

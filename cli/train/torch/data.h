// What `lockstep train` trains on and evaluates with.
#pragma once

#include <memory>
#include <string>

#include "lockstep/base/result.h"
#include "lockstep/data/token_source.h"
#include "lockstep/spec/spec.h"

namespace lockstep::cli {

struct TrainData {
  std::unique_ptr<data::TokenSource> training;
  std::unique_ptr<data::TokenSource> held_out;  // absent: the run does not evaluate
  std::string title;                            // "made-up text, seed 1234"
  std::string digest;                           // differs where samples do
};

// Made-up text. What is held out are samples that no step reaches.
TrainData made_up_data(const spec::Spec& spec);
// The files of [data]. Refuses a run file that names none.
Result<TrainData> open_data(const spec::Spec& spec);

}  // namespace lockstep::cli

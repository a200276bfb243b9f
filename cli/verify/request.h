// What `lockstep verify` is asked to do, from its arguments.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/verb.h"
#include "lockstep/data/masked_tokens.h"
#include "lockstep/model/steering.h"
#include "lockstep/spec/spec.h"

namespace lockstep::cli {

struct VerifyRequest {
  spec::Spec spec;                    // its layout is not meant
  std::vector<spec::Layout> layouts;  // all of them legal
  std::vector<std::string> ranks;     // numbers of ranks they need, ascending
  std::string selection;              // "every pair of settings, of 654 layouts"; empty: by name
  data::LabelMask labels = data::LabelMask::kSome;
  model::Routing routing = model::Routing::kScores;
};

// Nothing when something is wrong; every mistake is in `report`. `device`: in place of what the run
// file says. `tell` gets what is done meanwhile: choosing layouts can take minutes.
std::optional<VerifyRequest> read_verify_request(
    const Args& args, config::Report& report, std::optional<DeviceKind> device = {},
    const std::function<void(const std::string&)>& tell = {});

}  // namespace lockstep::cli

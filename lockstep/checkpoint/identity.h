// What must agree between a checkpoint and a job that goes on from it.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/result.h"
#include "lockstep/checkpoint/manifest.h"

namespace lockstep::checkpoint {

// Refuses facts that differ (LS0824): shows the values of both where they do, and the digests of
// both. `what` in the words of the message: "model".
Result<void> check_same(std::string_view what, const std::string& path, const Facts& there,
                        const Facts& here);

// Refuses (LS0822) a checkpoint without all weights of the model that it names, and of a training
// without all moments.
Result<void> check_holds_model(const Manifest& manifest, const std::string& path);

}  // namespace lockstep::checkpoint

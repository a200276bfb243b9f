// From a Hugging Face directory to a checkpoint of weights alone, from which a training can start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/units.h"
#include "lockstep/config/diagnostic.h"
#include "lockstep/files/durable.h"
#include "lockstep/hf/config_json.h"
#include "lockstep/hf/params.h"
#include "lockstep/hf/weights.h"
#include "lockstep/model/arch.h"

namespace lockstep::hf {

// A directory whose config.json and weights fit each other. Movable.
struct Directory {
  HfConfig config;  // the model is called like the folder
  std::string model_type;
  model::Model model;
  Weights weights;
  HfParams params;
};

// Reads config.json and the headers of the weights; everything that is wrong goes to `report`.
std::optional<Directory> open_directory(const std::string& folder, config::Report& report);

struct Imported {
  std::string checkpoint;  // path
  std::string model_file;  // path
  std::int64_t tensors = 0;
  Bytes bytes;  // of them
};

// Makes the folder `out`, which must not exist, with the checkpoint of step 0 and `model.toml`, the
// model that a run file can name. Elements keep the type they are stored in; who loads them widens them.
// Holds at most one tensor of the directory and a few megabytes. Refuses weights that are not finite
// (LS0841) and throws IoError; then it leaves nothing.
Result<Imported> write_checkpoint(const Directory& directory, files::Disk& disk,
                                  const std::string& out, const std::string& lockstep_version);

}  // namespace lockstep::hf

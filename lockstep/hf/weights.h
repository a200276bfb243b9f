// The tensors of a Hugging Face directory: those of model.safetensors, or of the files that
// model.safetensors.index.json lists.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/config/diagnostic.h"
#include "lockstep/files/safetensors.h"

namespace lockstep::hf {

bool is_file(const std::string& path);  // a regular one

// Files stay mapped as long as it lives. Movable. Any thread may read.
class Weights {
 public:
  struct Stored {
    const files::TensorEntry* entry = nullptr;
    std::string file;  // without the folder
  };

  // Opens every file and checks its header, and that the index tells the truth. Every fault found
  // goes to `report`: LS0004 for files that are not there, LS0821 for broken ones, LS0841 for an
  // index that does not fit them.
  static std::optional<Weights> open(const std::string& folder, config::Report& report);

  const Stored* find(std::string_view name) const;  // null pointer: there is none
  const std::map<std::string, Stored, std::less<>>& all() const { return tensors_; }
  std::size_t num_files() const { return files_.size(); }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  std::deque<files::Safetensors> files_;  // entries point into them
  std::map<std::string, Stored, std::less<>> tensors_;
};

}  // namespace lockstep::hf

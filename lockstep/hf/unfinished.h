// A folder that is removed unless what is being written there comes to its end.
#pragma once

#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/files/durable.h"

namespace lockstep::hf {

class Unfinished {
 public:
  Unfinished(files::Disk& disk, std::string folder) : disk_(disk), folder_(std::move(folder)) {}
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  ~Unfinished() {
    if (folder_.empty()) return;
    try {
      files::remove_all(disk_, folder_);
    } catch (const WorldError&) {  // what went wrong first is being told already
    }
  }
  void finished() { folder_.clear(); }

 private:
  files::Disk& disk_;
  std::string folder_;
};

}  // namespace lockstep::hf

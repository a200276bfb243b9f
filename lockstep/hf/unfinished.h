// A folder that is removed unless what is being written there comes to its end.
#pragma once

#include <string>
#include <string_view>
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
      (void)disk_.remove_folder(folder_, [](std::string_view) { return true; });
    } catch (const WorldError&) {  // what went wrong first is being told already
    }
  }
  void finished() { folder_.clear(); }

 private:
  files::Disk& disk_;
  std::string folder_;
};

}  // namespace lockstep::hf

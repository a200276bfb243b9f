// A layout as people write it: "tp=8,pp=16" and "tp8 pp16" are the same.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/base/result.h"
#include "lockstep/spec/layout.h"

namespace lockstep::cli {

// A layout that the user names.
struct OwnLayout {
  spec::Layout layout;
  std::int64_t microbatch = 1;
};

struct LayoutWords {
  OwnLayout own = {};
  std::string words = " ";  // each between spaces, as a layout's name has them
  bool has_dp = false;
  bool names_microbatch = false;  // which is not part of a layout's name

  bool says(const std::string& begin) const;  // some word begins so
};

// `where` names the text in errors.
Result<LayoutWords> parse_own(const std::string& text, const std::string& where);

}  // namespace lockstep::cli

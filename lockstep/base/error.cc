#include "lockstep/base/error.h"

namespace lockstep {

std::string to_text(const Error& error) {
  std::string text = "error[" + to_text(error.code) + "]: " + error.message;
  if (!error.help.empty()) text += "\n  help: " + error.help;
  return text;
}

}  // namespace lockstep

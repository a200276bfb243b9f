#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>

#include "cli/app.h"
#include "cli/verbs.h"
#include "lockstep/launch/spawn.h"

namespace {

std::optional<std::string> variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

int terminal_width() {
  winsize size = {};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 ? 80 : size.ws_col;
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::launch::end_with_parent();
  const lockstep::cli::Environment environment = {.lookup = variable,
                                                  .out_is_terminal = isatty(STDOUT_FILENO) != 0,
                                                  .err_is_terminal = isatty(STDERR_FILENO) != 0,
                                                  .width = terminal_width()};
  return static_cast<int>(lockstep::cli::run_lockstep(
      lockstep::cli::catalog(), {argv + 1, argv + argc}, environment, std::cout, std::cerr));
}

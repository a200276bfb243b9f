#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>

#include "cli/app.h"
#include "cli/run_file.h"
#include "cli/verbs.h"
#include "lockstep/launch/page.h"
#include "lockstep/launch/spares.h"
#include "lockstep/launch/spawn.h"

namespace {

int terminal_width() {
  winsize size = {};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 ? 80 : size.ws_col;
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::launch::end_with_parent();
  lockstep::launch::be_called_spare();
  lockstep::launch::show_life();
  const lockstep::cli::Environment environment = {.lookup = lockstep::cli::variable,
                                                  .out_is_terminal = isatty(STDOUT_FILENO) != 0,
                                                  .err_is_terminal = isatty(STDERR_FILENO) != 0,
                                                  .width = terminal_width()};
  return static_cast<int>(lockstep::cli::run_lockstep(
      lockstep::cli::catalog(), {argv + 1, argv + argc}, environment, std::cout, std::cerr));
}

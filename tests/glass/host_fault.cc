#include "tests/glass/host_fault.h"

#include <execinfo.h>
#include <unistd.h>

#include <array>
#include <csetjmp>
#include <csignal>
#include <string>

#include "tests/glass/race.h"

namespace lockstep::glass {
namespace {

bool (*is_device)(const void*) = nullptr;
thread_local sigjmp_buf* volatile way_back = nullptr;  // read by the handler

// A test device may do what handlers of real programs must not.
void on_fault(int /*signal*/, siginfo_t* info, void* /*context*/) {
  if (is_device(info->si_addr)) {
    race().host_touches(reinterpret_cast<std::uint64_t>(info->si_addr));
    if (way_back != nullptr) siglongjmp(*way_back, 1);
    for (const std::string& report : race().take_reports()) {
      const std::string line = report + "\n";
      if (write(STDERR_FILENO, line.data(), line.size()) < 0) break;
    }
    std::array<void*, 40> frames;
    backtrace_symbols_fd(frames.data(), backtrace(frames.data(), frames.size()), STDERR_FILENO);
  }
  std::signal(SIGSEGV, SIG_DFL);  // it faults again, and ends the process
}

}  // namespace

void tell_host_faults(bool (*is_device_memory)(const void*)) {
  is_device = is_device_memory;
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}

bool host_reads(const void* data) {
  sigjmp_buf here;
  if (sigsetjmp(here, /*savemask=*/1) != 0) return way_back = nullptr, true;
  way_back = &here;
  static_cast<void>(*static_cast<const volatile char*>(data));
  way_back = nullptr;
  return false;
}

}  // namespace lockstep::glass

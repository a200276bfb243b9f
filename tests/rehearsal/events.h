// What a process asks of the libraries of a rehearsal, written down for bench/launches.py: one line
// an event, `kind <tab> bytes <tab> name`, into a file of the folder that REHEARSAL_EVENTS names.
// Such a run is one of counts, without values: nothing is filled, copies of more than 1 MiB are not
// made, collectives move nothing and wait for nobody. So ranks may be processes, and models larger
// than the memory of the host.
#pragma once

#include <cxxabi.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

namespace lockstep::rehearsal {

constexpr std::size_t kLargestCopy = std::size_t{1} << 20;

class Events {
 public:
  static Events& get() {
    static auto* const one = new Events;
    return *one;
  }
  bool are_wanted() const { return file_ != nullptr; }

  void add(const char* kind, std::int64_t bytes, const char* name) {
    if (!are_wanted()) return;
    const std::lock_guard lock(mutex_);
    std::fprintf(file_, "%s\t%lld\t%s\n", kind, static_cast<long long>(bytes), name);
  }
  // Kernels are known to the runtime by the address of a function of the host.
  void name_kernel(const void* function, const char* mangled) {
    if (!are_wanted()) return;
    const std::lock_guard lock(mutex_);
    kernels_[function] = mangled;
  }
  void add_launch(const void* function) {
    if (are_wanted()) add("launch", 0, name_of(function).c_str());
  }
  void add_wait(const char* how) {
    add("wait", 0, how);
    if (are_wanted()) std::fflush(file_);  // processes may end without leaving main
  }

 private:
  Events() {
    const char* const folder = std::getenv("REHEARSAL_EVENTS");
    if (folder == nullptr) return;
    file_ = std::fopen((std::string(folder) + "/" + std::to_string(getpid())).c_str(), "w");
    if (file_ == nullptr) std::abort();
  }
  std::string name_of(const void* function) {
    const std::lock_guard lock(mutex_);
    const auto found = kernels_.find(function);
    if (found == kernels_.end()) return "unknown";
    int status = 0;
    char* const name = abi::__cxa_demangle(found->second, nullptr, nullptr, &status);
    std::string made = name != nullptr ? name : found->second;
    std::free(name);
    return made;
  }

  std::FILE* file_ = nullptr;
  std::mutex mutex_;
  std::map<const void*, const char*> kernels_;
};

}  // namespace lockstep::rehearsal

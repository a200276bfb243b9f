#include "cli/engine.h"

#if LOCKSTEP_WITH_TORCH
#include <dlfcn.h>

// Null unless the engine is linked in, as in tests.
extern "C" __attribute__((weak)) const lockstep::cli::Engine* lockstep_engine();
#endif

namespace lockstep::cli {

#if LOCKSTEP_WITH_TORCH

Result<const Engine*> load_engine(const std::string& user) {
  if (lockstep_engine != nullptr) return lockstep_engine();
  struct Loaded {
    const Engine* (*engine)() = nullptr;
    std::string trouble = {};
  };
  static const Loaded loaded = [] {
    Loaded made;
    if (void* const module = ::dlopen("liblockstep_torch.so", RTLD_NOW))
      made.engine = reinterpret_cast<const Engine* (*)()>(::dlsym(module, "lockstep_engine"));
    if (made.engine == nullptr) made.trouble = ::dlerror();
    return made;
  }();
  if (loaded.engine != nullptr) return loaded.engine();
  return Error{Code::kNeedsTorch,
               join_parts(user, " needs LibTorch, which cannot be loaded: ", loaded.trouble),
               "run tools/setup, or build again where the program is to run"};
}

#else

Result<const Engine*> load_engine(const std::string& user) {
  return Error{Code::kNeedsTorch,
               join_parts(user, " needs LibTorch, which this build does not have"),
               "build the preset `dev`"};
}

#endif

}  // namespace lockstep::cli

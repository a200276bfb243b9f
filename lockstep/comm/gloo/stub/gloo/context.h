// The torch wheel contains gloo but not its headers. These five declare just what
// ProcessGroupGloo.hpp mentions, so that the class can be constructed; no gloo object is ever made
// or copied through them.
#pragma once
#include <chrono>

namespace gloo {
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};
}  // namespace gloo

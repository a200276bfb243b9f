// Choices of random tests, the same for the same seed.
#pragma once

#include <cstdint>
#include <random>

namespace lockstep::program {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  // Between low and high, both included.
  int between(int low, int high) {
    return low + static_cast<int>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool coin() { return between(0, 1) == 1; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace lockstep::program

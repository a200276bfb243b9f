// Memory for a copy of a rank's state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace lockstep::checkpoint {

// Owns the memory, which is touched when it is made: a first touch takes longer than the copy for which
// a step waits.
class Staging {
 public:
  explicit Staging(std::int64_t bytes);
  std::byte* data() const { return data_.get(); }  // null: no bytes

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace lockstep::checkpoint

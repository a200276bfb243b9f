// What can go wrong, in three families.
// - Error: wrong input or an infeasible request. Data, returned in a Result.
// - WorldError: the world failed us (a peer, the network, a disk). Thrown, caught only where work
//   is restarted.
// - BrokenInvariant: a bug of ours. Thrown by LS_CHECK (check.h), caught only by main and by tests.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "lockstep/base/codes.h"

namespace lockstep {

struct Error {
  Code code = Code::kBug;
  std::string message;    // one sentence, no full stop: the field, its value, the limit
  std::string help = {};  // what to do, with the nearest legal values; may be empty
};

class WorldError : public std::runtime_error {
 public:
  explicit WorldError(Error error) : std::runtime_error(error.message), error_(std::move(error)) {}
  const Error& error() const { return error_; }

 private:
  Error error_;
};

// A file system or stream failed.
class IoError : public WorldError {
 public:
  using WorldError::WorldError;
};

class BrokenInvariant : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace lockstep

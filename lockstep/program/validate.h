// Whether a program is a correct step, as far as one can tell without running it and without
// looking at the order between pipeline ranks, which is deadlock.h's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/program/program.h"

namespace lockstep::program {

// What is wrong, and where.
struct Problem {
  Coord coord{-1};       // -1: the program as a whole
  std::int32_t op = -1;  // index in that rank's list; -1: the list as a whole
  std::string op_text;   // the op in words; empty without one
  std::string what;      // "reads param(3) before the gather of unit 3 (op 4) is waited for"
};

// "pipeline rank 1, op 12, wait for gather of unit 3: <what>".
std::string to_text(const Problem& problem);

// Collects problems up to a limit. Belongs to one thread.
class Problems {
 public:
  Problems(const Program& program, std::size_t limit) : program_(program), limit_(limit) {}

  bool is_full() const { return found_.size() >= limit_; }
  bool any() const { return !found_.empty(); }
  std::size_t size() const { return found_.size(); }
  void add(std::string what) { add(Coord{-1}, -1, std::move(what)); }
  void add(Coord coord, std::string what) { add(coord, -1, std::move(what)); }
  void add(Coord coord, std::int32_t op, std::string what);
  std::vector<Problem> take() { return std::move(found_); }

 private:
  const Program& program_;
  std::size_t limit_;
  std::vector<Problem> found_;
};

// All problems of the shape, the transfers, the ops of each list and the values they use
// (list_checks.h), at most `limit`. Later checks are left out where earlier ones say that they
// would make no sense. Time is n log n in the number of ops.
std::vector<Problem> validate(const Program& program, std::size_t limit = 20);

}  // namespace lockstep::program

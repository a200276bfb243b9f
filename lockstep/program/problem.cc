#include "lockstep/program/problem.h"

#include "lockstep/program/text.h"

namespace lockstep::program {

std::string to_text(const Problem& problem) {
  if (problem.coord.value < 0) return problem.what;
  std::string text = "pipeline rank " + std::to_string(problem.coord.value);
  if (problem.op >= 0) text += ", op " + std::to_string(problem.op) + ", " + problem.op_text;
  return text + ": " + problem.what;
}

void Problems::add(Coord coord, std::int32_t op, std::string what) {
  if (is_full()) return;
  Problem problem = {coord, op, "", std::move(what)};
  if (op >= 0)
    problem.op_text = op_text(program_, coord, program_.list(coord)[static_cast<std::size_t>(op)]);
  found_.push_back(std::move(problem));
}

}  // namespace lockstep::program

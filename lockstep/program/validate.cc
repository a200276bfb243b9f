#include "lockstep/program/validate.h"

#include <algorithm>

#include "lockstep/base/check.h"
#include "lockstep/base/result.h"
#include "lockstep/program/inventory.h"
#include "lockstep/program/list_checks.h"
#include "lockstep/program/passes/passes.h"
#include "lockstep/program/text.h"

namespace lockstep::program {
namespace {

void check_frame(const Program& program, Problems& problems) {
  if (const Result<void> sound = check_step(program.step); !sound.ok())
    return problems.add(sound.error().message);
  const auto coords = static_cast<std::size_t>(program.step.shape.coords);
  if (program.lists.size() != coords)
    return problems.add(join_parts(program.lists.size(), " lists for ", coords, " pipeline ranks"));
  const std::vector<Transfer> usual = usual_transfers(program.step);
  const auto [given, needed] = std::ranges::mismatch(program.transfers, usual);
  if (needed != usual.end())
    problems.add("transfer " + std::to_string(needed - usual.begin()) +
                 " is not, as it should be, that of the " + transfer_text(*needed));
  else if (given != program.transfers.end())
    problems.add("transfer " + std::to_string(given - program.transfers.begin()) + ", of the " +
                 transfer_text(*given) + ", crosses no boundary between pipeline ranks");
}

}  // namespace

std::string to_text(const Problem& problem) {
  if (problem.coord.value < 0) return problem.what;
  std::string text = "pipeline rank " + std::to_string(problem.coord.value);
  if (problem.op >= 0) text += ", op " + std::to_string(problem.op) + ", " + problem.op_text;
  return text + ": " + problem.what;
}

void Problems::add(Coord coord, std::int32_t op, std::string what) {
  if (is_full()) return;
  Problem problem = {coord, op, "", std::move(what)};
  if (op >= 0) problem.op_text = op_text(program_, coord, program_.list(coord)[op]);
  found_.push_back(std::move(problem));
}

std::vector<Problem> validate(const Program& program, std::size_t limit) {
  Problems problems(program, limit);
  check_frame(program, problems);
  if (problems.any()) return problems.take();
  for (std::int32_t c = 0; c < program.step.shape.coords && !problems.is_full(); ++c) {
    const std::size_t before = problems.size();
    check_numbers(program, {c}, problems);
    if (problems.size() > before) continue;
    check_inventory(program, {c}, problems);
    check_compute_order(program, {c}, problems);
    check_values(program, {c}, problems);
  }
  return problems.take();
}

}  // namespace lockstep::program

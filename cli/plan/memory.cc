// What `lockstep plan --memory` draws.
#include <ostream>
#include <string>
#include <utility>

#include "cli/plan/report.h"
#include "lockstep/base/check.h"
#include "lockstep/draw/stacks.h"
#include "lockstep/planner/layout_of.h"

namespace lockstep::cli {
namespace {

draw::Stacks stacks_of(const PlanRow& row) {
  const cost::PriceRequest& r = row.finalist.priced.request;
  const bool is_small = row.device_bytes() < 0.1 * kGib;
  const double unit = is_small ? kGib / 1024 : kGib;
  draw::Stacks stacks;
  stacks.unit = is_small ? "MiB" : "GiB";
  stacks.limit = cost::capacity_bytes(r.cluster->device) / unit;
  stacks.limit_name = "a device has";
  for (const cost::MemoryClass& part : cost::classes_of(cost::Memory{}))
    stacks.parts.push_back({part.name, part.name[0]});
  stacks.parts.push_back({"reserve and context", 'r'});
  for (const cost::Memory& held : row.stages()) {
    draw::StackRow made{r.pp > 1 ? strf("%d", held.stage) : "", {}, {}};
    for (const cost::MemoryClass& part : cost::classes_of(held))
      made.sizes.push_back(part.bytes / unit);
    made.sizes.push_back((row.device_bytes(held) - held.allocated()) / unit);
    made.note = cost::to_text(held.event);
    stacks.rows.push_back(std::move(made));
  }
  return stacks;
}

}  // namespace

void print_memory(const PlanAnswer& answer, Output& output) {
  const PlanRow& best = answer.rows.front();
  const bool has_stages = best.finalist.priced.request.pp > 1;
  const char* title = has_stages ? "Memory of pipeline ranks, each at its fullest moment"
                                 : "Memory of a device at its fullest moment";
  output.out << (output.colour ? strf("\n\x1b[1m%s\x1b[0m\n", title) : strf("\n%s\n", title))
             << draw::terminal(stacks_of(best), {.width = output.width, .colour = output.colour});
}

std::string memory_svg(const PlanRequest& request, const PlanRow& row) {
  draw::Stacks stacks = stacks_of(row);
  stacks.title = join_parts("Memory of ", request.model.name, " on ", request.cluster.name, ": ",
                            to_text(planner::layout_of(row.finalist)));
  return draw::svg(stacks);
}

}  // namespace lockstep::cli

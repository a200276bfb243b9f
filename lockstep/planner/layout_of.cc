#include "lockstep/planner/layout_of.h"

#include <string>
#include <vector>

#include "lockstep/base/check.h"

namespace lockstep::planner {
namespace {

using cost::Placement;

constexpr std::string_view kDataInside = "tp,cp,dp,pp";

Result<Placement> placement_of(const mesh::Order& order) {
  if (order == mesh::Order()) return Placement::kPipeInside;
  if (to_text(order) == kDataInside) return Placement::kDataInside;
  return Error{
      Code::kUnknownChoice, join_parts("order=", to_text(order), " has no price"),
      join_parts("the nearest: order=", to_text(mesh::Order()), " or order=", kDataInside)};
}

}  // namespace

Result<const pipeline::CatalogRow*> find_planned(std::string_view schedule) {
  std::string names;
  for (const pipeline::CatalogRow* row : planned_schedules()) {
    if (row->name == schedule) return row;
    names += join_parts(names.empty() ? "" : ", ", row->name);
  }
  return Error{Code::kUnknownChoice, join_parts("the schedule `", schedule, "` has no closed form"),
               "those that can be priced: " + names};
}

std::string timetable_name(const Timetable& timetable) {
  std::string name(timetable.schedule->name);
  return timetable.schedule->chunks == 0 ? name + strf(" x%d", timetable.chunks) : name;
}

spec::Layout layout_of(const cost::PriceRequest& r) {
  spec::Layout layout;
  layout.degrees = {.tp = r.tp, .cp = r.cp, .pp = r.pp, .dp = r.dp, .ep = r.ep, .etp = r.etp};
  if (const int shard = r.shard_group() / r.cp; shard < r.dp) layout.degrees.dp_shard = shard;
  if (r.placement == Placement::kDataInside) layout.order = *mesh::Order::parse(kDataInside);
  if (r.cp > 1) layout.context = r.context;
  layout.sp = r.sp;
  layout.zero = r.zero;
  layout.schedule = r.schedule->name;
  layout.chunks = r.chunks;
  layout.reduce = spec::default_reduce(r.zero);
  layout.recompute = recompute_of(r, evenly_recomputed(r, default_layer_split(r)));
  layout.microbatches = r.microbatches();
  return layout;
}

spec::Layout layout_of(const Finalist& finalist) {
  spec::Layout layout = layout_of(finalist.priced.request);
  layout.layers = finalist.layers;
  layout.recompute = recompute_of(finalist.priced.request, stages_of(finalist));
  return layout;
}

Result<cost::PriceRequest> request_of(const Question& question, const spec::Layout& layout,
                                      std::int64_t microbatch) {
  const auto schedule = find_planned(layout.schedule);
  if (!schedule.ok()) return schedule.error();
  const auto placement = placement_of(layout.order);
  if (!placement.ok()) return placement.error();
  const mesh::Degrees& d = layout.degrees;
  cost::PriceRequest request = Lattice::blank(question);
  request.tp = static_cast<int>(d.tp), request.cp = static_cast<int>(d.cp);
  request.pp = static_cast<int>(d.pp), request.dp = static_cast<int>(d.dp);
  request.ep = static_cast<int>(d.ep), request.etp = static_cast<int>(d.etp);
  set_sharding(question, {layout.zero, static_cast<int>(d.dp_shard.value_or(d.dp) * d.cp)},
               request);
  request.context = layout.context;
  request.sp = layout.sp;
  request.schedule = *schedule;
  request.chunks = layout.chunks;
  request.drop = layout.recompute.drop;
  if (const auto& blocks = layout.recompute.blocks; !blocks.empty())
    request.recomputed = most_recomputed(request, blocks);
  request.placement = *placement;
  request.microbatch = microbatch;
  request.stack.reduce_each_microbatch = layout.reduce == spec::Period::kMicrobatch;
  return request;
}

Result<Finalist> time_layout(const Question& question, const spec::Layout& layout,
                             std::int64_t microbatch) {
  auto request = request_of(question, layout, microbatch);
  if (!request.ok()) return request.error();
  request->headroom = 0;  // it is not sought: whoever names it knows
  return simulate({*request, cost::price(*request)},
                  stages_of(*request, layout.layers, layout.recompute.blocks));
}

}  // namespace lockstep::planner

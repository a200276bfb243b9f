#include "lockstep/search/layout_of.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"

namespace lockstep::search {
namespace {

using cost::Keep;
using cost::Pipe;
using cost::Placement;

constexpr std::array<std::pair<Pipe, std::string_view>, 8> kSchedules = {{
    {Pipe::k1f1b, "1f1b"},
    {Pipe::kInterleaved, "interleaved"},
    {Pipe::kGpipe, "gpipe"},
    {Pipe::kZbH1, "zb-h1"},
    {Pipe::kZbV, "zbv"},
    {Pipe::kVHalf, "v-half"},
    {Pipe::kVMin, "v-min"},
    {Pipe::kDualPipeV, "dualpipe-v"},
}};

constexpr std::string_view kDataInside = "tp,cp,dp,pp";

std::int64_t whole(double value) { return static_cast<std::int64_t>(value); }

Result<Keep> keep_of(const plan::Recompute& recompute) {
  if (recompute == plan::kKeepAll) return Keep::kAll;
  if (recompute == plan::kCheap) return Keep::kCheap;
  if (recompute == plan::kWholeBlock) return Keep::kInput;
  return Error{Code::kUnknownChoice, join_parts("recompute=", to_text(recompute), " has no price"),
               "the nearest: recompute=none, recompute=cheap or recompute=block"};
}

Result<Placement> placement_of(const mesh::Order& order) {
  if (order == mesh::Order()) return Placement::kPipeInside;
  if (to_text(order) == kDataInside) return Placement::kDataInside;
  return Error{
      Code::kUnknownChoice, join_parts("order=", to_text(order), " has no price"),
      join_parts("the nearest: order=", to_text(mesh::Order()), " or order=", kDataInside)};
}

}  // namespace

std::string_view schedule_name(Pipe pipe) {
  for (const auto& [known, name] : kSchedules)
    if (known == pipe) return name;
  LS_CHECK(false, "every pipe has a row");
  return {};
}

Result<Pipe> pipe_named(std::string_view schedule) {
  std::string names;
  for (const auto& [pipe, name] : kSchedules) {
    if (name == schedule) return pipe;
    names += join_parts(names.empty() ? "" : ", ", name);
  }
  return Error{Code::kUnknownChoice, join_parts("the schedule `", schedule, "` has no closed form"),
               "those that can be priced: " + names};
}

plan::Layout layout_of(const cost::PriceRequest& r) {
  plan::Layout layout;
  layout.degrees = {.tp = whole(r.tp),
                    .cp = whole(r.cp),
                    .pp = whole(r.pp),
                    .dp = whole(r.dp),
                    .ep = whole(r.ep),
                    .etp = whole(r.etp)};
  if (const std::int64_t shard = whole(r.shard_group() / r.cp); shard < layout.degrees.dp)
    layout.degrees.dp_shard = shard;
  if (r.placement == Placement::kDataInside) layout.order = *mesh::Order::parse(kDataInside);
  if (r.cp > 1) layout.context = r.context;
  layout.sp = r.sp;
  layout.zero = r.zero;
  layout.schedule = schedule_name(r.pipe);
  layout.chunks = static_cast<int>(r.chunks);
  layout.reduce = plan::default_reduce(r.zero);
  layout.recompute = recompute_of(r, evenly_remade(r, dealt_layers(r)));
  layout.microbatches = whole(r.microbatches());
  return layout;
}

plan::Layout layout_of(const Finalist& finalist) {
  plan::Layout layout = layout_of(finalist.priced.request);
  layout.layers = finalist.layers;
  layout.recompute = recompute_of(finalist.priced.request, stages_of(finalist));
  return layout;
}

Result<cost::PriceRequest> request_of(const Question& question, const plan::Layout& layout,
                                      std::int64_t microbatch) {
  const auto pipe = pipe_named(layout.schedule);
  if (!pipe.ok()) return pipe.error();
  const auto keep = keep_of(plan::rest_of(layout.recompute));
  if (!keep.ok()) return keep.error();
  const auto placement = placement_of(layout.order);
  if (!placement.ok()) return placement.error();
  const mesh::Degrees& d = layout.degrees;
  cost::PriceRequest request = Lattice::blank(question);
  request.tp = static_cast<double>(d.tp), request.cp = static_cast<double>(d.cp);
  request.pp = static_cast<double>(d.pp), request.dp = static_cast<double>(d.dp);
  request.ep = static_cast<double>(d.ep), request.etp = static_cast<double>(d.etp);
  request.dp_shard = static_cast<double>(d.dp_shard.value_or(d.dp) * d.cp);
  request.zero = layout.zero;
  request.context = layout.context;
  request.sp = layout.sp;
  request.pipe = *pipe;
  request.chunks = layout.chunks;
  request.keep = *keep;
  if (!layout.recompute.blocks.empty()) {
    request.keep = Keep::kInput, request.others = *keep;
    request.remade = most_remade(request, layout.recompute.blocks);
  }
  request.placement = *placement;
  request.microbatch = static_cast<double>(microbatch);
  request.stack.reduce_each_microbatch = layout.reduce == plan::Period::kMicrobatch;
  return request;
}

Result<Finalist> time_layout(const Question& question, const plan::Layout& layout,
                             std::int64_t microbatch) {
  const auto request = request_of(question, layout, microbatch);
  if (!request.ok()) return request.error();
  Stages stages =
      evenly_remade(*request, layout.layers.empty() ? dealt_layers(*request) : layout.layers);
  if (!layout.recompute.blocks.empty()) stages.remade = layout.recompute.blocks;
  return simulate({*request, cost::price(*request)}, stages);
}

}  // namespace lockstep::search

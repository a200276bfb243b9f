#include "lockstep/mesh/mesh.h"

#include <limits>
#include <numeric>

#include "lockstep/base/check.h"
#include "lockstep/mesh/divisors.h"

namespace lockstep::mesh {
namespace {

constexpr std::int64_t kMaxWorld = std::numeric_limits<std::int32_t>::max();

struct NamedDegree {
  const char* name;
  std::int64_t value;
};

std::array<NamedDegree, 4> dense_degrees(const Degrees& d) {
  return {{{"tp", d.tp}, {"cp", d.cp}, {"pp", d.pp}, {"dp", d.dp}}};
}

std::string product_text(const Degrees& d) {
  return join_parts("tp x cp x pp x dp = ", d.tp, " x ", d.cp, " x ", d.pp, " x ", d.dp);
}

Error below_one(const NamedDegree& degree) {
  return {Code::kBadDegree, join_parts(degree.name, " = ", degree.value, " is less than 1"),
          join_parts("set ", degree.name, " = 1 to leave the axis out")};
}

// The number of ranks, or why there cannot be that many.
Result<std::int64_t> count_ranks(const Degrees& d) {
  std::int64_t world = 1;
  for (const NamedDegree& degree : dense_degrees(d)) {
    if (degree.value < 1) return below_one(degree);
    const auto product = checked_product(world, degree.value);
    if (!product || *product > kMaxWorld)
      return Error{Code::kBadDegree,
                   join_parts(product_text(d), " is more than ", kMaxWorld, " ranks"),
                   "lower a degree"};
    world = *product;
  }
  return world;
}

Result<void> check_shard(const Degrees& d) {
  const std::int64_t shard = d.dp_shard.value_or(d.dp);
  if (shard < 1)
    return Error{Code::kBadDegree, join_parts("dp_shard = ", shard, " is less than 1"),
                 "leave dp_shard out to shard over all of dp"};
  if (d.dp % shard != 0)
    return Error{Code::kDoesNotDivide,
                 join_parts("dp_shard = ", shard, " does not divide dp = ", d.dp),
                 "the nearest values that do: " + to_text(nearest_divisors(d.dp, shard))};
  return {};
}

Result<void> check_experts(const Degrees& d) {
  for (const NamedDegree& degree : {NamedDegree{"ep", d.ep}, NamedDegree{"etp", d.etp}})
    if (degree.value < 1) return below_one(degree);
  const std::int64_t ranks = d.tp * d.cp * d.dp;
  const auto product = checked_product(d.ep, d.etp);
  if (product && ranks % *product == 0) return {};
  return Error{
      Code::kDoesNotDivide,
      join_parts("ep x etp = ", d.ep, " x ", d.etp, " does not divide tp x cp x dp = ", ranks),
      ranks % d.etp == 0 ? join_parts("with etp = ", d.etp, ", the nearest values of ep that fit: ",
                                      to_text(nearest_divisors(ranks / d.etp, d.ep)))
                         : join_parts("the nearest values of etp that divide ", ranks, ": ",
                                      to_text(nearest_divisors(ranks, d.etp)))};
}

std::string fitting_degrees(const Degrees& d, std::int64_t product, std::int64_t world) {
  std::string fits;
  for (const auto& [name, value] : dense_degrees(d)) {
    const std::int64_t others = product / value;
    if (world % others != 0) continue;
    fits += join_parts(fits.empty() ? "" : " or ", name, " = ", world / others);
  }
  if (!fits.empty()) return "with the other degrees as they are, " + fits + " fits";
  const std::int64_t model = product / d.dp;
  const std::int64_t below = world / model;
  std::string help = join_parts("the nearest with tp x cp x pp = ", model, ": ");
  if (below >= 1) help += join_parts("dp = ", below, " on ", below * model, " ranks or ");
  return help + join_parts("dp = ", below + 1, " on ", (below + 1) * model, " ranks");
}

// Numbers the places of a view: pp slowest, otherwise the earlier axis faster.
View make_view(const std::array<Axis, 5>& axes, const std::array<std::int64_t, 5>& extents) {
  View view;
  std::int32_t step = 1;
  for (const bool is_pipeline : {false, true}) {
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if ((axes[i] == Axis::kPipeline) != is_pipeline) continue;
      view[i] = {axes[i], static_cast<std::int32_t>(extents[i]), step};
      step *= view[i].extent;
    }
  }
  return view;
}

}  // namespace

Result<void> check_world(const Degrees& degrees, std::int64_t world) {
  const auto product = LS_TRY(count_ranks(degrees));
  if (product == world) return {};
  if (world < 1 || world > kMaxWorld)
    return Error{Code::kDegreesDoNotMatchWorld,
                 join_parts("a world of ", world, " ranks is not between 1 and ", kMaxWorld),
                 join_parts(product_text(degrees), " needs ", product, " ranks")};
  return Error{
      Code::kDegreesDoNotMatchWorld,
      join_parts(product_text(degrees), " = ", product, ", but the world has ", world, " ranks"),
      fitting_degrees(degrees, product, world)};
}

Mesh::Mesh()
    : dense_(make_view(kDenseView, {1, 1, 1, 1, 1})),
      expert_(make_view(kExpertView, {1, 1, 1, 1, 1})),
      grid_(dense_, order_) {}

Result<Mesh> Mesh::create(const Degrees& d, const Order& order) {
  const auto world = LS_TRY(count_ranks(d));
  LS_TRY(check_shard(d));
  LS_TRY(check_experts(d));

  const std::int64_t shard = d.dp_shard.value_or(d.dp);
  const std::int64_t replicate = d.dp / shard;
  const std::int64_t edp = d.tp * d.cp * d.dp / (d.ep * d.etp);
  const std::int64_t edp_replicate = std::gcd(replicate, edp);

  Mesh mesh;
  mesh.order_ = order;
  mesh.world_ = static_cast<std::int32_t>(world);
  mesh.dense_ = make_view(kDenseView, {d.tp, d.cp, d.pp, shard, replicate});
  mesh.expert_ = make_view(kExpertView, {d.etp, d.ep, d.pp, edp / edp_replicate, edp_replicate});
  mesh.grid_ = Grid(mesh.dense_, order);
  return mesh;
}

std::int32_t Mesh::degree(AxisSet axes) const {
  std::int32_t degree = 1;
  for (const Digit& digit : view_of(axes))
    if (axes.has(digit.axis)) degree *= digit.extent;
  return degree;
}

Coord Mesh::coord(Rank rank, AxisSet axes) const {
  return Coord{*group(rank, axes).index_of(rank)};
}

Rank Mesh::rank(const Coords& coords) const {
  std::int32_t position = 0;
  for (const Digit& digit : dense_) {
    const std::int32_t coord = coords[digit.axis].value;
    LS_CHECK(0 <= coord && coord < digit.extent, to_text(digit.axis), " coordinate ", coord, " of ",
             digit.extent);
    position += coord * digit.step;
  }
  return grid_.rank(position);
}

Group Mesh::group(Rank rank, AxisSet axes) const {
  LS_CHECK(0 <= rank.value && rank.value < world_, "rank ", rank.value, " of ", world_);
  return Group(grid_, view_of(axes), axes, rank);
}

const View& Mesh::view_of(AxisSet axes) const {
  if (kWorld.covers(axes)) return dense_;
  LS_CHECK(kExpertWorld.covers(axes), to_text(axes), " mixes the dense and the expert view");
  return expert_;
}

}  // namespace lockstep::mesh

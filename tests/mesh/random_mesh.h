// Seeded random meshes, small enough to list every rank, and the list itself: an oracle that walks
// nested counters and knows nothing of strides.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "lockstep/mesh/mesh.h"

namespace lockstep::mesh {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  // Between low and high, both included.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool coin() { return between(0, 1) == 1; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(from.size()) - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

inline std::vector<std::int64_t> divisors_of(std::int64_t n) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t d = 1; d <= n; ++d)
    if (n % d == 0) divisors.push_back(d);
  return divisors;
}

inline std::vector<std::string> all_order_texts() {
  std::vector<std::string> names = {"cp", "dp", "pp", "tp"};
  std::vector<std::string> texts;
  do {
    texts.push_back(names[0] + "," + names[1] + "," + names[2] + "," + names[3]);
  } while (std::next_permutation(names.begin(), names.end()));
  return texts;
}

inline Degrees random_degrees(Dice& dice, std::int64_t max_world) {
  Degrees d;
  do {
    d.tp = dice.between(1, 4);
    d.cp = dice.between(1, 4);
    d.pp = dice.between(1, 4);
    d.dp_shard = dice.between(1, 4);
    d.dp = *d.dp_shard * dice.between(1, 4);
  } while (d.tp * d.cp * d.pp * d.dp > max_world);
  const std::int64_t experts = dice.pick(divisors_of(d.tp * d.cp * d.dp));
  d.ep = dice.pick(divisors_of(experts));
  d.etp = experts / d.ep;
  return d;
}

inline Mesh random_mesh(Dice& dice, std::int64_t max_world) {
  const Degrees degrees = random_degrees(dice, max_world);
  return Mesh::create(degrees, Order::parse(dice.pick(all_order_texts())).value()).value();
}

inline Degrees degrees_of(const Mesh& mesh) {
  return {.tp = mesh.degree(Axis::kTensor),
          .cp = mesh.degree(Axis::kContext),
          .pp = mesh.degree(Axis::kPipeline),
          .dp = mesh.degree(kDp),
          .dp_shard = mesh.degree(Axis::kDataShard),
          .ep = mesh.degree(Axis::kExpert),
          .etp = mesh.degree(Axis::kExpertTensor)};
}

inline Coords coords_of(const Mesh& mesh, Rank rank) {
  Coords coords;
  for (int i = 0; i < kNumAxes; ++i)
    coords[static_cast<Axis>(i)] = mesh.coord(rank, static_cast<Axis>(i));
  return coords;
}

// coords[rank] by counting: the world in placement order, then each pp coordinate's ranks, with tp
// fastest, as experts.
inline std::vector<Coords> listed_coords(const Degrees& d, const std::string& order,
                                         std::int64_t edp_replicate) {
  std::vector<std::pair<Axis, std::int64_t>> wheels;  // fastest first
  for (std::size_t at = 0; at < order.size(); at += 3) {
    const std::string name = order.substr(at, 2);
    if (name == "tp") wheels.emplace_back(Axis::kTensor, d.tp);
    if (name == "cp") wheels.emplace_back(Axis::kContext, d.cp);
    if (name == "pp") wheels.emplace_back(Axis::kPipeline, d.pp);
    if (name == "dp") {
      wheels.emplace_back(Axis::kDataShard, *d.dp_shard);
      wheels.emplace_back(Axis::kDataReplicate, d.dp / *d.dp_shard);
    }
  }
  std::vector<Coords> coords;
  for (Coords now; true;) {
    coords.push_back(now);
    std::size_t wheel = 0;
    while (wheel < wheels.size() && ++now[wheels[wheel].first].value == wheels[wheel].second)
      now[wheels[wheel++].first] = Coord{0};
    if (wheel == wheels.size()) break;
  }

  std::map<std::array<std::int32_t, 5>, Coords*> in_expert_order;
  for (Coords& c : coords)
    in_expert_order[{c[Axis::kPipeline].value, c[Axis::kDataReplicate].value,
                     c[Axis::kDataShard].value, c[Axis::kContext].value, c[Axis::kTensor].value}] =
        &c;
  const std::int64_t edp = d.tp * d.cp * d.dp / (d.ep * d.etp);
  auto next = in_expert_order.begin();
  for (std::int32_t pp = 0; pp < d.pp; ++pp)
    for (std::int32_t r = 0; r < edp_replicate; ++r)
      for (std::int32_t s = 0; s < edp / edp_replicate; ++s)
        for (std::int32_t ep = 0; ep < d.ep; ++ep)
          for (std::int32_t etp = 0; etp < d.etp; ++etp) {
            Coords& c = *(next++)->second;
            c[Axis::kExpertTensor] = Coord{etp};
            c[Axis::kExpert] = Coord{ep};
            c[Axis::kExpertDataShard] = Coord{s};
            c[Axis::kExpertDataReplicate] = Coord{r};
          }
  return coords;
}

// Every non-empty set of axes of either view.
inline std::vector<AxisSet> all_axis_sets() {
  std::vector<AxisSet> sets;
  for (const auto& view : {kDenseView, kExpertView})
    for (unsigned bits = 1; bits < 32; ++bits) {
      AxisSet set;
      for (unsigned i = 0; i < 5; ++i)
        if ((bits >> i & 1u) != 0) set = set | view[i];
      if (std::ranges::find(sets, set) == sets.end()) sets.push_back(set);
    }
  return sets;
}

}  // namespace lockstep::mesh

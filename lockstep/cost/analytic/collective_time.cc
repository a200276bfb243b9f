#include "lockstep/cost/analytic/collective_time.h"

#include <algorithm>
#include <cmath>

namespace lockstep::cost {
namespace {

using cluster::Term;
using cluster::Tier;
using cluster::TierKind;

// NCCL's base latency of a ring in its simple protocol.
constexpr double kBaseLatency = 8.4e-6;

double tier_bandwidth(const Fabric& fabric, std::size_t index) {
  const Tier& tier = fabric.cluster->tiers[index];
  const bool inner = index == 0 || tier.kind != TierKind::kSwitch;
  const double both_ways = tier.kind == TierKind::kRing ? 2 : 1;
  const double reached = inner ? (*fabric.rates)[Term::kScaleUp]
                               : (*fabric.rates)[Term::kNetwork] * fabric.network_share;
  return tier.bytes_per_s.value / tier.oversubscription * both_ways * reached;
}

double members_inside(const Tier& tier, Members members) {
  return std::clamp<double>(static_cast<double>(tier.size) / members.stride, 1, members.size);
}

// Steps over `parts` places of a tier: a ring, or halving and doubling where that is shorter.
double latency_steps(double parts) {
  return std::min(parts - 1, 2 * std::ceil(std::log2(std::max(1.0, parts))) + 8);
}

struct Path {
  double bytes_per_s = 0;
  double latency = 0;
};

Path path_of(const Fabric& fabric, Members members) {
  Path path{1e30, kBaseLatency};
  double inside = 1, torus = 0;
  for (std::size_t i = 0; i < fabric.cluster->tiers.size() && inside < members.size; ++i) {
    const Tier& tier = fabric.cluster->tiers[i];
    const double here = members_inside(tier, members);
    if (here <= inside) continue;
    if (tier.kind == TierKind::kSwitch)
      path.bytes_per_s = std::min(path.bytes_per_s, inside * tier_bandwidth(fabric, i));
    else
      torus += tier_bandwidth(fabric, i);
    path.latency += latency_steps(here / inside) * tier.latency_s.value;
    inside = here;
  }
  if (torus > 0) path.bytes_per_s = std::min(path.bytes_per_s, torus);
  return path;
}

}  // namespace

double gather_seconds(const Fabric& fabric, double bytes, Members members) {
  if (members.size <= 1 || bytes <= 0) return 0;
  const Path path = path_of(fabric, members);
  return path.latency + bytes * (members.size - 1) / members.size / path.bytes_per_s;
}

double reduce_seconds(const Fabric& fabric, double bytes, Members members) {
  return 2 * gather_seconds(fabric, bytes, members);
}

double nodes_of(const Fabric& fabric, Members members) {
  return members.size / members_inside(fabric.cluster->tiers.front(), members);
}

double exchange_seconds(const Fabric& fabric, double bytes, Members members, double outer) {
  if (members.size <= 1 || bytes <= 0) return 0;
  double inside = 1, slowest = 0, latency = kBaseLatency;
  for (std::size_t i = 0; i < fabric.cluster->tiers.size() && inside < members.size; ++i) {
    const Tier& tier = fabric.cluster->tiers[i];
    const double here = members_inside(tier, members);
    if (here <= inside) continue;
    const double share = (here - inside) / members.size * (i > 0 ? outer : 1);
    slowest = std::max(slowest, bytes * share / tier_bandwidth(fabric, i));
    latency += tier.latency_s.value;
    inside = here;
  }
  return latency + slowest;
}

double hop_seconds(const Fabric& fabric, double bytes, int stride) {
  const auto& tiers = fabric.cluster->tiers;
  std::size_t i = 0;
  while (i + 1 < tiers.size() && tiers[i].size <= stride) ++i;
  return tiers[i].latency_s.value + bytes / tier_bandwidth(fabric, i);
}

}  // namespace lockstep::cost

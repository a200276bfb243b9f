#include "lockstep/cluster/cluster.h"

#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/enum_names.h"
#include "lockstep/cluster/rates.h"

namespace lockstep::cluster {
namespace {

constexpr EnumNames<Origin, 4> kOrigins = {{"published", "recalled", "uncalibrated", "user"}};
constexpr EnumNames<TierKind, 3> kTierKinds = {{"switch", "ring", "line"}};

Error bad(std::string message, std::string help = {}) {
  return {Code::kBadCluster, std::move(message), std::move(help)};
}

std::string label(const Tier& tier) { return "tier `" + tier.name + "`"; }

Result<void> check_tier(const Tier& tier, std::int64_t inner) {
  if (tier.name.empty()) return bad("a tier has no name");
  const std::int64_t size = tier.size;
  const std::string sized = join_parts(label(tier), " has size ", size);
  if (size < 1) return bad(sized + "; a tier joins at least one device");
  if (inner > 0 && size <= inner)
    return bad(join_parts(sized, ", but the tier inside it has ", inner),
               "list tiers from the innermost outwards; each must be larger than the one before");
  if (inner > 0 && size % inner != 0)
    return bad(join_parts(sized, ", which is not a multiple of ", inner,
                          ", the size of the tier inside it"),
               join_parts("the nearest sizes are ", size / inner * inner, " and ",
                          (size / inner + 1) * inner));
  if (!tier.bytes_per_s.known())
    return bad(label(tier) +
               strf(" has bytes_per_s %g; it must be positive", tier.bytes_per_s.value));
  if (tier.latency_s.value < 0)
    return bad(label(tier) +
               strf(" has latency_s %g; it must not be negative", tier.latency_s.value));
  if (!(tier.oversubscription >= 1))
    return bad(label(tier) + strf(" has oversubscription %g; 1 means none, and it cannot be less",
                                  tier.oversubscription));
  return {};
}

}  // namespace

Result<void> check_power(const DeviceType& device) {
  if (!device.watts.known()) return {};
  const double usual = usual_watts(device.name), said = device.watts.value;
  if (usual == 0)
    return bad(join_parts("a power of ", said, " W for device `", device.name,
                          "`, whose usual power is not known"),
               "leave it out, or name one of the H100, A100 and B200 kinds");
  if (said >= kLeastPower * usual && said <= kMostPower * usual) return {};
  return bad(join_parts("a power of ", said, " W for device `", device.name,
                        "`, which usually has ", usual, " W"),
             join_parts("from ", kLeastPower * usual, " to ", kMostPower * usual,
                        " W rates can be carried over"));
}

std::string_view to_text(Origin origin) { return kOrigins.name_of(origin); }
std::string_view to_text(TierKind kind) { return kTierKinds.name_of(kind); }

Result<Cluster> validated(Cluster cluster) {
  const std::string counted = join_parts("the cluster has ", cluster.count, " devices");
  if (cluster.count < 1) return bad(counted + "; it needs at least one");
  if (cluster.count > kMaxDevices)
    return bad(join_parts(counted, "; ranks are counted up to ", kMaxDevices));
  if (!cluster.device.memory.known())
    return bad("device `" + cluster.device.name + "` has no memory size");
  LS_TRY(check_power(cluster.device));
  if (cluster.tiers.empty()) return bad("the cluster has no tiers; even one device has its own");
  std::int64_t inner = 0;
  for (const Tier& tier : cluster.tiers) {
    LS_TRY(check_tier(tier, inner));
    inner = tier.size;
  }
  if (inner != cluster.count)
    return bad(join_parts("the outermost ", label(cluster.tiers.back()), " has size ", inner,
                          ", but ", counted),
               "the outermost tier joins all devices");
  return cluster;
}

}  // namespace lockstep::cluster

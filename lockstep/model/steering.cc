#include "lockstep/model/steering.h"

#include "lockstep/base/check.h"
#include "lockstep/base/random.h"

namespace lockstep::model {
namespace {

constexpr double kFar = 1e4;
constexpr double kSwallows = 1e30;  // every score, in f64 too: sums with it are equal

double bias_of(const Moe& moe, Routing routing, std::int64_t block, std::int64_t expert) {
  switch (routing) {
    case Routing::kScores:
      return 0;
    case Routing::kTies:
      return kSwallows;
    case Routing::kLast:
      return kFar * static_cast<double>(expert);
    case Routing::kHalf:
      return expert < moe.experts / 2 ? kFar : 0;
    case Routing::kRandom:
      break;
  }
  const RandomStream stream(1, "routing");
  return kFar * stream.uniform(static_cast<std::uint64_t>(block * moe.experts + expert));
}

}  // namespace

std::vector<float> steering_biases(const Model& model, Routing routing) {
  const Moe& moe = model.config.moe;
  LS_CHECK(moe.router_bias, model.config.name, " has no selection biases");
  std::vector<float> biases;
  for (int unit = 0, block = 0; unit < model.num_units(); ++unit) {
    if (!model.unit(unit).has_experts()) continue;
    for (std::int64_t expert = 0; expert < moe.experts; ++expert)
      biases.push_back(static_cast<float>(bias_of(moe, routing, block, expert)));
    ++block;
  }
  return biases;
}

}  // namespace lockstep::model

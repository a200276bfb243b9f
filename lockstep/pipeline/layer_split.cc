#include "lockstep/pipeline/layer_split.h"

#include "lockstep/base/check.h"

namespace lockstep::pipeline {
namespace {

// The fullest stages hold `most`. One less do the first, if it is short, and the last `short_tail`.
struct Rule {
  Rule(int layers, int stages)
      : most((layers + stages - 1) / stages),
        missing(most * stages - layers),
        first_is_short(missing > 1),
        short_tail(missing - (first_is_short ? 1 : 0)) {}

  int most, missing;
  bool first_is_short;
  int short_tail;
};

}  // namespace

std::vector<int> default_layer_split(int layers, int stages) {
  LS_CHECK(layers >= 0 && stages >= 1, layers, " layers over ", stages, " stages");
  std::vector<int> split;
  for (int s = 0; s < stages; ++s) split.push_back(layers_of_stage(layers, stages, s));
  return split;
}

int layers_of_stage(int layers, int stages, int stage) {
  const Rule rule(layers, stages);
  const bool is_short = stage == 0 ? rule.first_is_short : stage >= stages - rule.short_tail;
  return rule.most - (is_short ? 1 : 0);
}

int short_stages(int layers, int stages) { return Rule(layers, stages).missing; }

CoordLayers coord_layers(int layers, const Shape& shape, Placement placement) {
  const int p = shape.coords;
  const Rule rule(layers, shape.stages());
  const int all = shape.chunks * rule.most;
  if (rule.missing == 0) return {all, all, all};
  // The short tail is whole chunks and the end of the one before, which runs up or down the
  // coordinates: where it begins they hold most.
  const int chunks = rule.short_tail / p, rest = rule.short_tail % p;
  const bool is_down = coord_of(placement, {shape.stages() - (chunks + 1) * p}, p).value > 0;
  const int begin = all - chunks, second = begin - (rest == p - 1 ? 1 : 0),
            end = begin - (rest > 0 ? 1 : 0);
  const int embedding = rule.first_is_short ? 1 : 0;
  return {(is_down ? end : begin) - embedding, second, is_down ? begin : end};
}

}  // namespace lockstep::pipeline

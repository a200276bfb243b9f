// How many layers of a model each stage of a pipeline holds, unless a layout says so itself. Runs,
// prices and plans all ask here.
#pragma once

#include <vector>

#include "lockstep/pipeline/schedule.h"

namespace lockstep::pipeline {

// Even, but embedding and head each take the place of a layer (Llama 3, arXiv 2407.21783, section
// 3.3.2): where the stages do not divide the layers, each holds the rounded-up share and some hold
// one less, first of all the last stage, then the first, then those between from the end inwards.
// So no stage is empty unless there are fewer layers than stages; then the ends are, and hold the
// embedding and the head alone. REQUIRES, of all below: layers >= 0, stages >= 1.
std::vector<int> default_layer_split(int layers, int stages);

// One stage of it, in constant time. REQUIRES: 0 <= stage < stages.
int layers_of_stage(int layers, int stages, int stage);

// Stages of it that hold one layer less than the fullest: 0 to stages - 1.
int short_stages(int layers, int stages);

// What coordinates hold of it, over their chunks: the first, the fullest between and the last. In
// constant time. REQUIRES: shape.coords > 1; `middle` has no sense below 3.
struct CoordLayers {
  int first = 0, middle = 0, last = 0;
};
CoordLayers coord_layers(int layers, const Shape& shape, Placement placement);

}  // namespace lockstep::pipeline

// What a reference found of a step, and how far a dump's gradients may be from it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/audit/dump.h"

namespace lockstep::audit {

// By Hugging Face name, in the order of Tensor::values.
using Gradients = std::map<std::string, std::vector<double>>;

// Of the mean over tokens.
struct Step {
  double loss = 0;
  double grad_norm = 0;
  Gradients gradients = {};
};

double norm_of(const std::vector<double>& values);
// The norm of a - factor b. REQUIRES: equal sizes.
double distance(const std::vector<double>& a, const std::vector<double>& b, double factor = 1);

// Distances, in the norm over a tensor, that rounding explains (docs/numerics.md).
struct Bounds {
  std::vector<double> gradients;  // of each, in the dump's order
  double loss = 0;                // relative
  double grad_norm = 0;           // relative, of what was said to the dump's own gradients
  double typical = 0;  // of all gradients together, relative: how well a factor can be told
};
// `own` is what one rank finds in the type of the dump's passes, `truth` in a wider one.
Bounds bounds_of(const Dump& dump, const Step& truth, const Step& own);

// One tensor of the dump beside the reference's.
struct Compared {
  double distance = 0, reference = 0, bound = 0;  // norms
  double relative() const { return reference == 0 ? distance : distance / reference; }
  double ratio() const;  // distance to bound; infinite for numbers that are none
  bool is_right() const { return ratio() <= 1; }
};
std::vector<Compared> compare(const Dump& dump, const Step& truth, const Bounds& bounds);

// Which part of a tensor is wrong, and who had it.
struct Whereabouts {
  std::string rows;             // "rows 32 to 63 of 64, heads 4 to 7"; "all 64 rows"
  std::vector<int> ranks = {};  // that wrote wrong pieces; ascending
  int writers = 0;              // ranks that wrote any
};
Whereabouts locate(const Dump& dump, const Tensor& tensor, const std::vector<double>& truth,
                   double bound);

// Rows of one head of a weight or bias of attention; 0 of other tensors. `dim` says of which.
struct HeadRows {
  std::int64_t rows = 0;
  int dim = 0;
};
HeadRows head_rows(const model::ModelConfig& model, const std::string& tensor);

}  // namespace lockstep::audit

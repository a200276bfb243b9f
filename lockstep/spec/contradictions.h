// The rules about several settings at once, over plain values: read_spec() shows what they find at
// its place in a run file, legal() as errors. They say what cannot be meant; what can be meant but
// not yet run is legal()'s alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/result.h"
#include "lockstep/cluster/cluster.h"
#include "lockstep/model/model_config.h"
#include "lockstep/spec/layout.h"

namespace lockstep::spec {

// What is asked for, as far as it is known: an absent part leaves out the rules that need it.
struct Request {
  const model::ModelConfig* model = nullptr;
  const cluster::Cluster* cluster = nullptr;
  std::optional<mesh::Degrees> degrees = {};
  bool dp_is_known = true;  // false: dp is a guess, because it follows from something refused
  std::optional<model::CpMethod> context = {};
  std::optional<bool> sp = {};
  std::optional<int> zero = {};
  std::optional<std::string> schedule = {};
  std::optional<int> chunks = {};
  std::optional<int> resident = {};  // here absent also means not given
  std::optional<int> prefetch = {};
  std::vector<int> layers = {};  // empty: not given
  Recompute recompute = {};
  std::optional<std::int64_t> microbatches = {};
  std::optional<std::int64_t> seq = {};
  std::optional<std::int64_t> global_batch = {};
  std::optional<std::int64_t> microbatch = {};
  BatchRamp ramp = {};
};
Request request_of(const model::ModelConfig& model, const Layout& layout, const Batch& batch);

// One side of a contradiction: where it may have been written, and what to write there.
struct Side {
  std::vector<std::string> keys;  // of a run file; the first that is set is meant
  std::string text;
  std::string elsewhere = {};  // written before the text when it is not the first key
};

struct Contradiction {
  Error error;
  std::vector<Side> sides;  // the one to change first
  bool is_warning = false;  // doubtful, but it may be meant
  // Help in place of the error's where one of these keys was set over a run file, and so is the one
  // to change.
  std::vector<std::pair<std::string, std::string>> nearest = {};
};
// "4 or 8": the multiples of `unit` around `wanted`, none below 1.
std::string nearest_multiples(std::int64_t wanted, std::int64_t unit);

// Every rule that does not hold, in a fixed order; the header of spec.h lists them. Degrees whose
// product cannot be counted are reported alone.
std::vector<Contradiction> contradictions(const Request& request);

// What tp, cp and pp leave of the devices for dp. kDegreesDoNotMatchWorld when that is no whole
// number, with the nearest degrees; kBadDegree when nobody can count the ranks.
Result<std::int64_t> data_degree(const mesh::Degrees& degrees, const cluster::Cluster& cluster);

}  // namespace lockstep::spec

// Puts a Unit together from the layers that several families share. Used by the family files only.
//
// Names given here are short ("attn.q"); the builder adds the unit's prefix, ".weight" and ".bias".
#pragma once

#include <string>
#include <string_view>

#include "lockstep/model/arch.h"

namespace lockstep::model {

struct Linear {
  Role role = Role::kMlp;
  std::string name;  // ours
  std::string hf;    // Hugging Face's
  std::int64_t in = 0;
  std::int64_t out = 0;
  Split split = Split::kNone;
  std::int64_t grain = 1;  // of the dimension that `split` divides
  bool bias = false;
  bool into_residual = false;  // output is added to the residual sum: smaller initial values
};

class UnitBuilder {
 public:
  // `prefix` and `hf_prefix` go before every name: "blocks.{i}." and "model.layers.{i}.".
  UnitBuilder(const ModelConfig& config, UnitKind kind, std::string prefix, std::string hf_prefix);

  void norm(std::string_view name, std::string_view hf, std::int64_t width);
  void linear(const Linear& linear);
  // Weights only; the caller lists matrix products as the runtime performs them (fused).
  void matmul(std::string_view name, std::int64_t k, std::int64_t n, Split split);

  // Grouped-query attention with rotary positions, Hugging Face's llama names.
  void attention(std::int64_t window);
  // Gate, up and down of width `ffn`.
  void swiglu(std::string_view name, std::string_view hf, std::int64_t ffn, Role role = Role::kMlp);
  // Router, routed experts and shared experts; `mixtral` selects that model's names.
  void experts(bool mixtral);

  void token_embedding(std::string_view hf);
  // Norm, projection and loss; `hf` names the projection.
  void vocabulary_head(std::string_view hf_norm, std::string_view hf);

  // Anything else; the prefixes are added here too.
  Param& param(Role role, std::string_view name, std::string_view hf,
               std::vector<std::int64_t> shape);

  Unit take() { return std::move(unit_); }
  Unit& unit() { return unit_; }

 private:
  void stacked(const char* name, const std::string& hf, std::int64_t out, std::int64_t in,
               Split split);
  Init weight_init(bool into_residual) const;

  const ModelConfig& config_;
  Unit unit_;
  std::string prefix_;
  std::string hf_prefix_;
};

// embed, `layers` positions of `block`, head.
Model assemble(const ModelConfig& config, Unit embed, Unit block, Unit head);

// The families, of which describe() in arch.h picks one. REQUIRES: problems(config) is empty.
Model describe_gpt2(const ModelConfig& config);
Model describe_rotary(const ModelConfig& config);  // all others

}  // namespace lockstep::model

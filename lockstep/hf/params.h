// A model's parameters, found in the tensors of a Hugging Face directory.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/hf/pieces.h"
#include "lockstep/hf/weights.h"
#include "lockstep/model/arch.h"
#include "lockstep/model/hf_names.h"

namespace lockstep::hf {

// Refers to the model and to the weights. Any thread may read.
class HfParams {
 public:
  struct Place {
    std::string name;  // "blocks.0.attn.q.weight"
    std::vector<std::int64_t> shape;
    const Weights::Stored* stored = nullptr;
    DType type = DType::kF32;  // of the stored elements
    Piece piece;
  };

  // Finds every parameter, the tied head excepted. All that does not fit goes to `report` (LS0841):
  // tensors that are missing, have another shape or a type that is not read, are left over, or should be
  // tied and differ. Tables that older files hold besides parameters (causal masks, rotary frequencies)
  // are passed over, and so is the name of the base model before every tensor, which files of a model
  // without its head leave out.
  static std::optional<HfParams> find(const model::Model& model, const Weights& weights,
                                      config::Report& report);

  std::span<const Place> places() const { return places_; }

  // Rows [first, ...) of a parameter into `out`, in the type they are stored in. REQUIRES: whole rows.
  static void read(const Place& place, std::int64_t first, std::span<std::byte> out);

  const std::vector<std::string>& passed_over() const { return passed_over_; }  // names, as stored

 private:
  std::vector<Place> places_;
  std::vector<std::string> passed_over_;
};

}  // namespace lockstep::hf

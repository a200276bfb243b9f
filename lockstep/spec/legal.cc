#include "lockstep/spec/legal.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/units.h"
#include "lockstep/mesh/divisors.h"
#include "lockstep/mesh/mesh.h"
#include "lockstep/model/unit_bytes.h"
#include "lockstep/spec/contradictions.h"

namespace lockstep::spec {
namespace {

class Runtime {
 public:
  Runtime(const model::ModelConfig& model, const Layout& layout, DType dtype)
      : model_(model), layout_(layout), dtype_(dtype) {}

  std::vector<Error> take() {
    const mesh::Degrees& d = layout_.degrees;
    if (model_.moe.experts > 0) experts(d);
    type();
    recompute();
    traits();
    return std::move(found_);
  }

 private:
  std::string title() const { return model_.name.empty() ? "the model" : model_.name; }

  void refuse(std::string message, std::string help) {
    found_.push_back({Code::kNotRunYet, std::move(message), std::move(help)});
  }

  // Tensor ranks that share no expert send rows of their own to experts: only under sequence
  // parallelism they have some.
  void experts(const mesh::Degrees& d) {
    if (d.tp % d.etp != 0)
      refuse(
          join_parts("etp = ", d.etp, " beside tp = ", d.tp, " can be planned but not run yet"),
          "the nearest etp that divide tp: " + mesh::to_text(mesh::nearest_divisors(d.tp, d.etp)));
    else if (d.etp != d.tp && !layout_.sp)
      refuse(join_parts("etp = ", d.etp, " beside tp = ", d.tp,
                        " without sequence parallelism cannot be run: tensor ranks would send the "
                        "same tokens to experts"),
             join_parts("set sp = true, or etp = ", d.tp));
  }

  void type() {
    if (dtype_ == DType::kBF16 || dtype_ == DType::kF32 || dtype_ == DType::kF64) return;
    found_.push_back({Code::kUnknownChoice,
                      join_parts("dtype = ", to_text(dtype_), " is no type to train in"),
                      "the nearest: dtype = bf16 or f32, or f64 to verify"});
  }

  // Rows of a block that keeps nothing but its input: only code can ask for both.
  void recompute() {
    const auto meant = parse_recompute(to_text(layout_.recompute));
    if (!meant.ok()) return found_.push_back(meant.error());
    LS_CHECK(*meant == layout_.recompute, "counts of blocks come with `full`");
  }

  void traits() {
    for (const model::UnsupportedFeature& trait : model::unsupported(model_))
      refuse(join_parts(trait.field, " = ", trait.value, " of ", title(),
                        " can be planned but not run yet"),
             "the nearest: " + trait.nearest);
  }

  const model::ModelConfig& model_;
  const Layout& layout_;
  DType dtype_;
  std::vector<Error> found_;
};

}  // namespace

std::vector<Error> legal(const model::ModelConfig& model, const Layout& layout, const Batch& batch,
                         DType dtype) {
  std::vector<Error> errors = model::problems(model);
  if (!errors.empty()) return errors;
  for (Contradiction& found : contradictions(request_of(model, layout, batch)))
    if (!found.is_warning) errors.push_back(std::move(found.error));
  for (Error& error : Runtime(model, layout, dtype).take()) errors.push_back(std::move(error));
  return errors;
}

}  // namespace lockstep::spec

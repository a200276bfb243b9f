#include "lockstep/spec/legal.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/units.h"
#include "lockstep/mesh/divisors.h"
#include "lockstep/model/unit_bytes.h"
#include "lockstep/spec/contradictions.h"

namespace lockstep::spec {
namespace {

class Runtime {
 public:
  Runtime(const model::ModelConfig& model, const Layout& layout, const Batch& batch, DType dtype)
      : model_(model), layout_(layout), batch_(batch), dtype_(dtype) {}

  std::vector<Error> take() {
    const mesh::Degrees& d = layout_.degrees;
    vocabulary(d.tp);
    context_axis(d.cp);
    expert_axis("ep", d.ep);
    expert_axis("etp", d.etp);
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

  void axis(const char* name, std::int64_t degree, const std::string& help) {
    const mesh::Degrees& d = layout_.degrees;
    refuse(join_parts(name, " = ", degree, " (with pp = ", d.pp, ", dp = ", d.dp,
                      ") can be planned but not run yet"),
           join_parts("the nearest: ", name, " = 1", help));
  }

  // Its ranks may go to the data axis or the pipeline, where batch and layers allow.
  void context_axis(std::int64_t degree) {
    if (degree <= 1) return;
    const mesh::Degrees& d = layout_.degrees;
    std::string elsewhere;
    if (mesh::Mesh::create(d).ok()) {  // so that the products fit
      const bool cuts = batch_.microbatch > 0 && batch_.global_batch % (d.dp * degree) == 0 &&
                        batch_.global_batch / (d.dp * degree) % batch_.microbatch == 0;
      if (cuts && !layout_.microbatches) elsewhere = join_parts("dp = ", d.dp * degree);
      if (d.pp * degree * layout_.chunks <= model_.layers)
        elsewhere += join_parts(elsewhere.empty() ? "" : " or ", "pp = ", d.pp * degree);
    }
    axis("cp", degree, elsewhere.empty() ? "" : ", the same ranks with " + elsewhere);
  }

  // A plan may pad the vocabulary; the embedding and the head that run cut it as it is.
  void vocabulary(std::int64_t tp) {
    if (tp <= 1 || model_.vocab % tp == 0) return;
    const std::int64_t heads = std::gcd(model_.vocab, model_.kv_heads);
    const std::int64_t all = std::max<std::int64_t>(std::gcd(heads, model_.ffn), 1);
    refuse(join_parts("tp = ", tp, " does not divide the ", model_.vocab,
                      " rows of the vocabulary of ", title(),
                      "; padded ones can be planned but not run yet"),
           join_parts("the nearest tp that does: ", to_text(mesh::nearest_divisors(all, tp)),
                      "; or vocab = ", (model_.vocab / tp + 1) * tp));
  }

  void expert_axis(const char* name, std::int64_t degree) {
    if (degree > 1 && model_.moe.experts > 0) axis(name, degree, "");
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
    LS_CHECK(*meant == layout_.recompute, "counts of blocks come with `block`");
  }

  void traits() {
    for (const model::UnsupportedFeature& trait : model::unsupported(model_))
      refuse(join_parts(trait.field, " = ", trait.value, " of ", title(),
                        " can be planned but not run yet"),
             "the nearest: " + trait.nearest);
  }

  const model::ModelConfig& model_;
  const Layout& layout_;
  const Batch& batch_;
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
  for (Error& error : Runtime(model, layout, batch, dtype).take())
    errors.push_back(std::move(error));
  return errors;
}

}  // namespace lockstep::spec

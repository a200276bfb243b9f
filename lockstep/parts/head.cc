#include <utility>

#include "lockstep/parts/families.h"

namespace lockstep::parts {
namespace {

class HeadWriter {
 public:
  HeadWriter(const model::ModelConfig& config, const Sizes& sizes, bool grad, Values values)
      : grad_(grad), is_capped_(config.logit_softcap > 0.0), sizes_(sizes), b_(config, list_) {
    list_.values = std::move(values);
  }

  Written run() {
    const Builder::Normed normed = norm();
    if (grad_) d_rows_ = b_.part(Kind::kReserve, {}, "d_normed", {Dim::kT, Dim::kH});
    const std::size_t begin = list_.parts.size();
    const ValueId logits = this->logits();
    const ValueId d_logits = sizes_.tp > 1 ? shared_entropy(logits) : entropy(logits);
    if (grad_) {
      d_rows_ = b_.part(Kind::kLogitsGrad, {d_rows_, d_logits}, "d_normed", {Dim::kT, Dim::kH},
                        Elem::kCompute, "head");
      b_.put(Kind::kLinearWeight, {rows_, d_logits}, {}, "head");
    }
    for (std::size_t i = begin; i < list_.parts.size(); ++i) list_.parts[i].repeats = true;
    if (grad_) norm_grad(normed);
    return std::move(list_);
  }

  Written without_loss() {
    norm();
    list_.output = logits();
    return std::move(list_);
  }

 private:
  Builder::Normed norm() {
    list_.input = list_.values.add("input", {Dim::kP, Dim::kH});
    const Builder::Normed normed = b_.norm(list_.input, "norm", "normed", "input");
    rows_ = b_.gather_rows(normed.y);
    return normed;
  }
  ValueId logits() {
    return capped(
        b_.part(Kind::kLogits, {rows_}, "logits", {Dim::kC, Dim::kV}, Elem::kWide, "head"));
  }
  ValueId capped(ValueId logits) {
    if (!is_capped_) return logits;
    std::vector<ValueId> out = {list_.values.like(logits, "logits")};
    if (grad_) out.push_back(slope_ = list_.values.like(logits, "slope"));
    b_.put(Kind::kCap, {logits}, out);
    return out[0];
  }
  // The gradient of what was capped from that of what it became.
  ValueId uncapped(ValueId d) {
    if (!is_capped_) return d;
    const ValueId made = list_.values.like(d, "d_logits");
    b_.put(Kind::kCapGrad, {d, slope_}, {made});
    return made;
  }

  // Each returns d logits, in the run's dtype; without gradients nothing.
  ValueId entropy(ValueId logits) {
    if (grad_)
      return uncapped(b_.part(Kind::kEntropyGrad, {logits}, "d_logits", {Dim::kC, Dim::kV}));
    b_.put(Kind::kEntropy, {logits}, {});
    return kNoValue;
  }

  ValueId shared_entropy(ValueId logits) {
    Values& values = list_.values;
    const ValueId row = values.add("row", {Dim::kC}, Elem::kIndex);
    const ValueId elsewhere = values.add("elsewhere", {Dim::kC}, Elem::kFlag);
    b_.put(Kind::kTokenRows, {}, {row, elsewhere});
    const ValueId exponentials = values.like(logits, "exponentials");
    const ValueId own = values.add("softmax", {Dim::kThree, Dim::kC}, Elem::kWide);
    b_.put(Kind::kSoftmax, {logits, row, elsewhere}, {exponentials, own});
    const ValueId all = b_.part(Kind::kAllGather, {own}, "all_softmax",
                                {Dim::kRanks, Dim::kThree, Dim::kC}, Elem::kWide);
    const ValueId log_probs = values.add("log_probs", {Dim::kC}, Elem::kWide);
    const ValueId share = values.add("share", {Dim::kC}, Elem::kWide);
    b_.put(Kind::kTotals, {all}, {log_probs, share});
    b_.put(Kind::kAddLosses, {log_probs}, {});
    if (!grad_) return kNoValue;
    const std::vector<Dim> dims = {Dim::kC, Dim::kV};
    const ValueId softmax = b_.part(Kind::kMinusOne, {exponentials, share, row, elsewhere},
                                    "d_logits", dims, Elem::kWide);
    const ValueId d = uncapped(b_.part(Kind::kScaleRows, {softmax}, "d_logits", dims, Elem::kWide));
    return sizes_.is_narrow() ? b_.part(Kind::kRound, {d}, "d_logits", dims) : d;
  }

  void norm_grad(const Builder::Normed& normed) {
    const ValueId d = b_.reduce_rows(d_rows_);
    list_.output = list_.values.like(list_.input, "d_input");
    std::vector<ValueId> in = {d, list_.input};
    std::vector<ValueId> finished = {list_.values.add("d_norm", {Dim::kH}, Elem::kWide)};
    const bool layer = normed.mean != kNoValue;
    if (layer) finished.push_back(list_.values.add("d_norm_bias", {Dim::kH}, Elem::kWide));
    for (const ValueId stat : normed.stats()) in.push_back(stat);
    std::vector<ValueId> out = finished;
    out.insert(out.begin(), list_.output);
    b_.put(layer ? Kind::kLayerNormGrad : Kind::kRmsNormGrad, in, out, "norm");
    b_.put(Kind::kAccumulate, finished, {}, "norm");
  }

  const bool grad_, is_capped_;
  const Sizes& sizes_;
  Written list_;
  Builder b_;
  ValueId rows_ = kNoValue, d_rows_ = kNoValue, slope_ = kNoValue;
};

}  // namespace

Written head_list(const model::ModelConfig& config, const Sizes& sizes, bool grad, Values values) {
  return HeadWriter(config, sizes, grad, std::move(values)).run();
}

Written logits_list(const model::ModelConfig& config, const Sizes& sizes) {
  return HeadWriter(config, sizes, /*grad=*/false, {}).without_loss();
}

}  // namespace lockstep::parts

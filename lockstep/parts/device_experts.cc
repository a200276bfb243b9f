#include <algorithm>

#include "lockstep/parts/kernel_script.h"

namespace lockstep::parts {
namespace {

// Temporaries of nn/device_experts.cc, each until the end of the statement or function that it
// lives in.
class ExpertScript : public KernelScript {
 public:
  using KernelScript::KernelScript;
  std::vector<Step> run() {
    write();
    return take_steps();
  }

 private:
  bool is_narrow() const { return sizes_.is_narrow(); }
  std::int64_t wide(const Value& value) const { return sizes_.elements(value) * sizes_.wide; }
  // Of a copy that is made only of what is narrow.
  std::int64_t copied(const Value& value) const { return is_narrow() ? wide(value) : 0; }

  void route() {
    const model::Moe& moe = sizes_.moe;
    const Value& logits = in(0);
    with("wide_logits", copied(logits), [&] { output(1); });
    output(2);
    // What experts are chosen by: logits, or scores with the bias.
    const std::int64_t each = moe.router_bias ? sizes_.wide : sizes_.width;
    const std::int64_t bias = moe.router_bias && sizes_.wide > 4 ? moe.experts * sizes_.wide : 0;
    take("bias", bias);
    take("left", sizes_.elements(logits) * each);
    give("bias", bias);
    if (moe.groups > 1) close_groups(each);
    give("left", sizes_.elements(logits) * each);
    output(0);
    moment("sums", moe.norm_topk_prob ? tokens() * sizes_.wide : 0);
  }
  std::int64_t tokens() const { return sizes_[Dim::kP]; }
  void close_groups(std::int64_t each) {
    const std::int64_t groups = tokens() * sizes_.moe.groups;
    const bool two = sizes_.moe.router_bias && sizes_.moe.experts > sizes_.moe.groups;
    with("two", two ? 2 * groups * (each + 8) : 0, [&] { take("best", groups * each); });
    with("open", groups * each + tokens() * 8, [&] { moment("closed", groups); });
    give("best", groups * each);
  }
  // Whether each choice is of each expert, while `body` adds that up.
  template <class Body>
  void with_is_expert(const Value& choices, Body body) {
    const std::int64_t experts = sizes_[Dim::kExperts];
    with("experts", experts * 8,
         [&] { with("is_expert", sizes_.elements(choices) * experts, body); });
  }
  void tell_losses() {
    const std::int64_t rows = sizes_[Dim::kP];
    moment("told", rows * (sizes_.wide + 8));
  }
  void aux_loss_grad() {
    const std::int64_t experts = sizes_[Dim::kExperts], losses = tokens() * sizes_.wide;
    with("sequences", tokens() * 8,
         [&] { with("counts", tokens() * experts * 8, [&] { output(0); }); });
    with("losses", losses, [&] {
      moment("products", tokens() * experts * sizes_.wide);
      moment("all", has_shares() ? 0 : losses);
      tell_losses();
    });
  }
  bool has_shares() const { return sizes_.moe.score == model::RouterScore::kSoftmax; }
  void z_loss_grad() {
    const std::int64_t rows = sizes_[Dim::kP] * sizes_.wide;
    output(0);
    with("wide_logits", copied(in(1)) + wide(in(1)) + rows, [&] {
      moment("scaled", rows);
      with("losses", rows, [&] { tell_losses(); });
    });
  }
  void route_grad() {
    const std::int64_t tokens = sizes_[Dim::kExperts] * 8;
    with_is_expert(in(2), [&] { take("tokens", tokens); });
    give("tokens", tokens);
    const std::int64_t all = wide(in(1)), sums = 2 * sizes_[Dim::kP] * sizes_.wide;
    take("d_scores", all);
    moment("d_chosen", sizes_.moe.norm_topk_prob ? wide(in(0)) + sums : 0);
    if (part_.in.size() > 3 && !has_shares()) added_to_scores(all);
    take("wide_d", is_narrow() ? all : 0);
    if (!is_narrow()) output(0);
    give("d_scores", all);
    if (is_narrow()) output(0);
    give("wide_d", is_narrow() ? all : 0);
  }
  void added_to_scores(std::int64_t all) {
    const std::int64_t one = tokens() * sizes_.wide;
    take("sums", one);
    with("products", all, [&] { take("sums", one); });
    take("added", all);
    give("sums", 2 * one);
    give("added", all);
  }
  void sort_rows() {
    const std::int64_t rows = sizes_[Dim::kR], counts = sizes_[Dim::kExperts] + 1;
    outputs();
    with("counts", counts * rows * 4, [&] {
      moment("experts", counts * 8);
      with("place", rows * 4, [&] { moment("other_counts", rows * (8 + 4)); });
    });
  }
  void sort_met() {
    const std::int64_t each = sizes_.bytes(in(0)), row = sizes_.bytes(out(0));
    outputs();
    with("upto", 2 * each, [&] {
      with("moves", each,
           [&] { with("row", row, [&] { with("from", row, [&] { moment("moved", row); }); }); });
    });
  }
  void return_rows() {
    const std::int64_t first = sizes_.bytes(out(0));
    const std::int64_t others = sizes_[in(1).dims[1]] > 1 ? first : 0;
    if (!is_narrow()) return output(0), moment("row", others);
    take("row", first);
    with("sum", wide(out(0)), [&] {
      give("row", first);
      moment("row", others);
      output(0);
    });
  }
  void swiglu() {
    with("wide_y", copied(out(0)), [&] { output(0); });
  }
  void swiglu_grad() {
    const std::int64_t all = wide(out(0)), made = copied(out(0));
    with("wide_gate", made, [&] {
      take("wide_y", made);
      if (!is_narrow()) output(1);
      with("products", all, [&] { output(2); });
      if (is_narrow()) output(1);
      give("wide_y", made);
      with("wide_d", made, [&] { output(0); });
    });
  }

  std::int64_t rows() const { return sizes_[in(0).dims[0]]; }
  ExpertBlocks blocks() const { return {sizes_.elements(in(part_.in.size() - 1)), rows()}; }
  std::int64_t columns(const Value& value) const { return sizes_[value.dims.back()]; }
  // While `body` runs.
  template <class Body>
  void with_blocks(Body body) {
    const ExpertBlocks of = blocks();
    const std::int64_t rows = of.all() * of.size * 8, numbers = of.all() * 3 * 8;
    take("blocks", numbers);
    moment("begins", of.more * 8);
    take("blocks", rows);
    moment("numbers", of.size * 8);
    body(of);
    give("blocks", rows + numbers);
  }
  // What `each` of blocks takes, for the experts' own and then for some of the others.
  void by_blocks(const ExpertBlocks& of, std::int64_t each, std::int64_t each_more) {
    moment("rows", of.experts * each);
    moment("rows", of.at_once() * (each + each_more));
  }
  void product() {
    const std::int64_t from = columns(in(0)), to = columns(out(0)), rows = this->rows();
    if (rows == 0) return output(0);
    with_blocks([&](const ExpertBlocks& of) {
      with("product", of.all() * of.size * to * sizes_.width, [&] {
        by_blocks(of, of.size * from * sizes_.width, from * to * sizes_.width);
        moment("places", rows * (4 * 8 + 1));
        with("places", rows * 8, [&] { output(0); });
      });
    });
  }
  void weight_product() {
    const std::int64_t from = columns(in(0)), to = columns(in(1));
    if (rows() == 0) return;
    with_blocks([&](const ExpertBlocks& of) {
      with("is_other", of.all() * of.size,
           [&] { by_blocks(of, of.size * (from + to) * sizes_.width, from * to * sizes_.wide); });
    });
  }

  void write() {
    switch (part_.kind) {
      case Kind::kRoute:
        return route();
      case Kind::kRouteGrad:
        return route_grad();
      case Kind::kCountChoices:
        return output(0), with_is_expert(in(0), [] {});
      case Kind::kAuxLossGrad:
        return aux_loss_grad();
      case Kind::kSigmoid:
        return with("wide_logits", copied(in(0)), [&] { output(0); });
      case Kind::kSigmoidGrad:
        return with("wide_d", copied(out(0)), [&] { output(0); });
      case Kind::kZLossGrad:
        return z_loss_grad();
      case Kind::kSortRows:
        return sort_rows();
      case Kind::kSortMet:
        return sort_met();
      case Kind::kReturnRows:
        return return_rows();
      case Kind::kExpertLinear:
      case Kind::kExpertLinearGrad:
        return product();
      case Kind::kExpertLinearWeight:
        return weight_product();
      case Kind::kExpertSwiGlu:
        return swiglu();
      case Kind::kExpertSwiGluGrad:
        return swiglu_grad();
      default:
        return outputs();
    }
  }
};

}  // namespace

std::vector<Step> device_expert_steps(const Part& part, const Pass& pass, const Values& values,
                                      const Sizes& sizes) {
  return ExpertScript(part, pass, values, sizes).run();
}

}  // namespace lockstep::parts

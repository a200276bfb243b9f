// A walk through the passes of nn/block.cc.
#include <algorithm>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/model/pass_record.h"

namespace lockstep::model {
namespace {

// Buffers of LibTorch's CPU flash attention for one thread, whose query and key blocks are sized by
// the sequence (aten/src/ATen/native/cpu/FlashAttentionKernel.cpp).
struct FlashBlocks {
  std::int64_t queries, keys;
  explicit FlashBlocks(std::int64_t seq)
      : queries(std::min<std::int64_t>(seq >= 768 ? 256 : (seq >= 192 ? 64 : 32), seq)),
        keys(std::min<std::int64_t>(512, seq)) {}
};

class BlockPasses {
 public:
  BlockPasses(const ModelConfig& config, const Unit& unit, const UnitSizes& sizes)
      : config_(config),
        unit_(unit),
        sizes_(sizes),
        d_(config, sizes),
        flash_(sizes.seq),
        r_(d_, sizes) {}

  // `keep`: the stash; `keep_input`: somebody else still needs the input.
  PassRecord forward(bool keep, bool keep_input) {
    r_.hold("input", r_.path());
    attend(keep, keep_input);
    widen(keep);
    r_.take("product", product());
    if (!keep) r_.give("gate_up");
    finish_part("out");
    if (!keep || sizes_.drop.product) r_.give("product");
    if (!keep) r_.give("middle");
    return r_.finish();
  }

  PassRecord recompute() {
    r_.hold("input", r_.path());
    attend(true, true);
    widen(true);
    if (!sizes_.drop.product) r_.take("product", product());
    return r_.finish();
  }

  // `at_once`: the weights' gradients follow, and what was gathered stays for them.
  PassRecord input_grad(bool at_once) {
    r_.hold(stash_tensors(config_, unit_, sizes_));
    r_.hold("d_out", r_.path());
    mlp_grad(at_once);
    attention_grad(at_once);
    if (sizes_.drop.attn_normed) r_.norm_again("attn_normed", d_.unit_rows());
    finish_part("d_in");
    r_.norm_grad("d_attn_norm", d_.unit_rows());
    if (at_once && r_.gathers()) r_.give("d_middle");
    r_.give("input");
    r_.give_stats("input");
    return r_.finish();
  }

  // Products add straight into the gradient buffer.
  PassRecord weight_grad(bool at_once) {
    const std::vector<UnitTensor> work = work_tensors(config_, unit_, sizes_);
    for (const UnitTensor& tensor : work) {
      const bool stayed = at_once && (tensor.name == "d_middle" || tensor.name == "d_out");
      r_.hold(stayed ? r_.gathered(tensor.name) : tensor.name, stayed ? r_.whole() : tensor.bytes);
    }
    const auto add = [&](const std::string& d_out, const std::string& input) {
      r_.give(d_out);
      r_.give(input);
    };
    const auto gathered = [&](const std::string& x, bool stayed = false) {
      if (r_.gathers() && !stayed) r_.gather_rows(x), r_.give(x);
      return r_.gathered(x);
    };
    add("d_qkv", gathered("attn_normed"));
    add(gathered("d_middle", at_once), "attn_out");
    add("d_gate_up", gathered("mlp_normed"));
    add(gathered("d_out", at_once), "product");
    for (const UnitTensor& tensor : work)
      if (is_finished(tensor)) r_.give(tensor.name);
    return r_.finish();
  }

 private:
  std::int64_t qkv() const { return d_.tokens * (d_.q + 2 * d_.k) * d_.s; }
  std::int64_t gate_up() const { return d_.tokens * d_.g * d_.s; }
  std::int64_t product() const { return d_.tokens * d_.f * d_.s; }
  // A gradient that W only adds: of a norm or a bias.
  static bool is_finished(const UnitTensor& tensor) {
    return tensor.name.ends_with("_norm") || tensor.name.ends_with("_bias");
  }

  void rotate(std::int64_t columns) {
    if (!d_.rotary) return;
    if (d_.is_narrow())
      r_.moment("rope_rows", d_.wide_block(sizes_.seq, columns) / 2 * 3);
    else
      r_.moment("rope_half", d_.tokens * columns / 2 * d_.s);
  }
  void bias_grad(bool has, const std::string& d_bias, std::int64_t columns) {
    if (has) r_.take(d_bias, columns * d_.wide);
  }

  // Narrow types have a second tile in their own type. From 64 tokens on the forward kernel also
  // packs all keys and values, in pairs of rows, on a CPU whose units for bf16 want them so.
  std::int64_t flash_forward() const {
    const std::int64_t wide = d_.wide * flash_.queries * (flash_.keys + 2 + d_.head_dim);
    if (!d_.is_narrow()) return sizes_.threads * wide;
    const auto even = [](std::int64_t n) { return n + n % 2; };
    const std::int64_t seq = sizes_.seq;
    if (seq < 64 || !sizes_.packs_keys)
      return sizes_.threads * (wide + d_.s * flash_.queries * flash_.keys);
    const std::int64_t each =
        wide + d_.s * (flash_.queries * even(flash_.keys) + flash_.keys * d_.head_dim);
    return sizes_.threads * each + d_.s * sizes_.batch * d_.k * (seq + even(seq));
  }
  // Sums of LibTorch's rows are counted where they are taken, on the rank's own thread.
  std::int64_t flash_backward() const {
    if (d_.is_narrow())
      return sizes_.threads * d_.wide * AttentionTiles(sizes_.seq, d_.head_dim).floats();
    return d_.wide * flash_.queries * (2 * sizes_.threads * flash_.keys + 1);
  }

  void norm(const std::string& of, const std::string& normed, bool keep) {
    r_.norm(of, normed, d_.unit_rows());
    if (!keep) r_.give_stats(of);
  }

  // Queries and keys as attention reads them: copies where heads have norms, else slices of qkv.
  void read_heads() {
    if (!d_.head_norms) return;
    r_.norm("q", "q", d_.head_rows(d_.heads));
    rotate(d_.q);
    r_.norm("k", "k", d_.head_rows(d_.kv_heads));
    rotate(d_.k);
  }
  void give_heads() {
    if (d_.head_norms) r_.give("q"), r_.give("k");
  }
  void give_head_stats() {
    if (d_.head_norms) r_.give_stats("q"), r_.give_stats("k");
  }

  // A product of all rows of `x`, which is given back as soon as nothing reads it.
  void multiply(const std::string& x, bool keep, const std::string& result, std::int64_t bytes) {
    r_.gather_rows(x);
    if (r_.gathers() && !keep) r_.give(x);
    r_.take(result, bytes);
    if (r_.gathers() || !keep) r_.give(r_.gathered(x));
  }

  // The last product of a cut part, and its sum over the ranks.
  void finish_part(const std::string& sum) {
    r_.take(r_.summand(sum), r_.whole());
    r_.reduce_rows(sum);
  }

  void attend(bool keep, bool keep_input) {
    norm("input", "attn_normed", keep);
    multiply("attn_normed", keep && !sizes_.drop.attn_normed, "qkv", qkv());
    if (!d_.head_norms) rotate(d_.q + d_.k);
    read_heads();
    r_.take("attn_out", d_.tokens * d_.q * d_.s);
    r_.take("attn_lse", d_.tokens * d_.heads * d_.wide);
    r_.moment("flash_scratch", flash_forward());
    give_heads();
    give_head_stats();
    if (!keep) r_.give("attn_lse"), r_.give("qkv");
    finish_part("middle");
    if (!keep_input) r_.give("input");
    if (!keep) r_.give("attn_out");
  }

  void widen(bool keep) {
    norm("middle", "mlp_normed", keep);
    multiply("mlp_normed", keep && !sizes_.drop.mlp_normed, "gate_up", gate_up());
  }

  void mlp_grad(bool at_once) {
    bias_grad(d_.linear_bias, "d_down_bias", d_.h);
    if (sizes_.drop.product) r_.take("product", product());
    r_.gather_rows("d_out");
    const bool in_place = d_.g == d_.f;  // the activation's gradient
    r_.take(in_place ? "d_gate_up" : "d_product", product());
    if (r_.gathers() && !at_once) r_.give(r_.gathered("d_out"));
    if (!in_place) {
      r_.take("d_gate_up", gate_up());
      r_.give("d_product");
    }
    r_.give("gate_up");
    bias_grad(d_.linear_bias, "d_gate_up_bias", d_.g);
    if (sizes_.drop.mlp_normed) r_.norm_again("mlp_normed", d_.unit_rows());
    finish_part("d_middle");
    r_.norm_grad("d_mlp_norm", d_.unit_rows());
    r_.give("middle");
    r_.give_stats("middle");
    if (r_.gathers() && at_once) r_.give("d_out");
  }

  // Narrow ones are written where they are wanted.
  void take_head_grads() {
    if (d_.is_narrow()) return r_.take("d_qkv", qkv());
    r_.take("d_q", d_.tokens * d_.q * d_.s);
    r_.take("d_k", d_.tokens * d_.k * d_.s);
    r_.take("d_v", d_.tokens * d_.k * d_.s);
  }

  void attention_grad(bool at_once) {
    bias_grad(d_.linear_bias, "d_attn_out_bias", d_.h);
    r_.gather_rows("d_middle");
    r_.take("d_attn", d_.tokens * d_.q * d_.s);
    if (r_.gathers() && !at_once) r_.give(r_.gathered("d_middle"));
    read_heads();
    take_head_grads();
    r_.moment("flash_scratch", flash_backward());
    for (const char* used : {"d_attn", "attn_lse"}) r_.give(used);
    give_heads();
    if (!d_.head_norms) r_.give("qkv");
    if (d_.is_narrow()) {
      rotate(d_.q + d_.k);
    } else {
      rotate(d_.q);
      rotate(d_.k);
    }
    if (d_.head_norms) {
      r_.norm_grad("d_q_norm", d_.head_rows(d_.heads));
      r_.norm_grad("d_k_norm", d_.head_rows(d_.kv_heads));
      give_head_stats();
      r_.give("qkv");
    }
    if (!d_.is_narrow()) {
      r_.take("d_qkv", qkv());
      for (const char* part : {"d_q", "d_k", "d_v"}) r_.give(part);
    }
    bias_grad(d_.qkv_bias, "d_qkv_bias", d_.q + 2 * d_.k);
  }

  const ModelConfig& config_;
  const Unit& unit_;
  const UnitSizes& sizes_;
  const UnitDims d_;
  const FlashBlocks flash_;
  PassRecorder r_;
};

}  // namespace

PassRecord block_record(const ModelConfig& config, const Unit& unit, const UnitSizes& sizes,
                        UnitPass pass) {
  BlockPasses block(config, unit, sizes);
  switch (pass) {
    case UnitPass::kForward:
      return block.forward(true, true);
    case UnitPass::kCheckpoint:
      return block.forward(false, true);
    case UnitPass::kEvaluate:
      return block.forward(false, false);
    case UnitPass::kRecompute:
      return block.recompute();
    case UnitPass::kInputGrad:
      return block.input_grad(false);
    case UnitPass::kWeightGrad:
      return block.weight_grad(false);
    case UnitPass::kBackwardInput:
      return block.input_grad(true);
    case UnitPass::kBackwardWeight:
      return block.weight_grad(true);
    case UnitPass::kHeadGrad:
      break;
  }
  LS_CHECK(false, "a block has no such pass");
  return {};
}

}  // namespace lockstep::model

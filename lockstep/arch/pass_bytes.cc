#include "lockstep/arch/pass_bytes.h"

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/arch/unit_dims.h"
#include "lockstep/base/check.h"

namespace lockstep::arch {
namespace {

// Writes a list of events; knows what is live, so that a name is enough to give something back.
class Recorder {
 public:
  // Live before the pass.
  void hold(const std::vector<UnitTensor>& tensors) {
    for (const UnitTensor& tensor : tensors) hold(tensor.name, tensor.bytes);
  }
  void hold(const std::string& name, std::int64_t bytes) {
    LS_CHECK(live_.emplace(name, bytes).second, name, " is live already");
  }
  void take(const std::string& name, std::int64_t bytes) {
    hold(name, bytes);
    events_.push_back({name, bytes});
  }
  void give(const std::string& name) {
    const auto node = live_.extract(name);
    LS_CHECK(!node.empty(), name, " is not live");
    events_.push_back({name, -node.mapped()});
  }
  // Scratch of one kernel.
  void moment(const std::string& name, std::int64_t bytes) {
    take(name, bytes);
    give(name);
  }
  MemoryEvents finish() { return std::move(events_); }

 private:
  std::map<std::string, std::int64_t> live_;
  MemoryEvents events_;
};

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
      : config_(config), unit_(unit), sizes_(sizes), d_(config, sizes), flash_(sizes.seq) {}

  // `keep`: the stash; `keep_input`: somebody else still needs the input.
  MemoryEvents forward(bool keep, bool keep_input) {
    r_.hold("input", path());
    attend(keep, keep_input);
    widen(keep);
    r_.take("product", product());
    if (!keep) r_.give("gate_up");
    r_.take("out", path());
    if (!keep || sizes_.drop.product) r_.give("product");
    if (!keep) r_.give("middle");
    return r_.finish();
  }

  MemoryEvents recompute() {
    r_.hold("input", path());
    attend(true, true);
    widen(true);
    if (!sizes_.drop.product) r_.take("product", product());
    return r_.finish();
  }

  MemoryEvents input_grad() {
    r_.hold(stash_tensors(config_, unit_, sizes_));
    r_.hold("d_out", path());
    mlp_grad();
    attention_grad();
    if (sizes_.drop.attn_normed) r_.take("attn_normed", path());
    r_.take("d_in", path());
    norm_grad("d_attn_norm");
    r_.give("input");
    r_.give("input_rstd");
    return r_.finish();
  }

  // Products add straight into the gradient buffer.
  MemoryEvents weight_grad() {
    r_.hold(work_tensors(config_, unit_, sizes_));
    for (const char* operand : {"d_qkv", "attn_normed", "d_middle", "attn_out", "d_gate_up",
                                "mlp_normed", "d_out", "product", "d_attn_norm", "d_mlp_norm"})
      r_.give(operand);
    return r_.finish();
  }

 private:
  std::int64_t path() const { return d_.path * d_.h * d_.s; }
  std::int64_t qkv() const { return d_.tokens * (d_.q + 2 * d_.k) * d_.s; }
  std::int64_t product() const { return d_.tokens * d_.f * d_.s; }
  void rotate() { r_.moment("rope_half", d_.tokens * (d_.q + d_.k) / 2 * d_.s); }

  // The factor of each row, then the scaled rows.
  void norm(const std::string& rstd, const std::string& normed, bool keep) {
    r_.take(rstd, d_.path * d_.s);
    r_.take(normed, path());
    if (!keep) r_.give(rstd);
  }

  void attend(bool keep, bool keep_input) {
    norm("input_rstd", "attn_normed", keep);
    r_.take("qkv", qkv());
    if (!keep || sizes_.drop.attn_normed) r_.give("attn_normed");
    rotate();
    r_.take("attn_out", d_.tokens * d_.q * d_.s);
    r_.take("attn_lse", d_.tokens * d_.heads * d_.lse_s);
    r_.moment("flash_scratch", d_.lse_s * flash_.queries * (flash_.keys + 2 + d_.head_dim));
    if (!keep) r_.give("attn_lse"), r_.give("qkv");
    r_.take("middle", path());
    if (!keep_input) r_.give("input");
    if (!keep) r_.give("attn_out");
  }

  void widen(bool keep) {
    norm("middle_rstd", "mlp_normed", keep);
    r_.take("gate_up", 2 * product());
    if (!keep || sizes_.drop.mlp_normed) r_.give("mlp_normed");
  }

  // Turns the gradient of a norm's output into that of its input, in place.
  void norm_grad(const std::string& d_gain) {
    r_.take("row_products", path());
    r_.take("row_sums", d_.path * d_.s);
    r_.take(d_gain, d_.h * d_.s);
    r_.give("row_products");
    r_.give("row_sums");
  }

  void mlp_grad() {
    if (sizes_.drop.product) r_.take("product", product());
    r_.take("d_product", product());
    r_.take("d_gate_up", 2 * product());
    r_.give("d_product");
    r_.give("gate_up");
    if (sizes_.drop.mlp_normed) r_.take("mlp_normed", path());
    r_.take("d_middle", path());
    norm_grad("d_mlp_norm");
    r_.give("middle");
    r_.give("middle_rstd");
  }

  void attention_grad() {
    r_.take("d_attn", d_.tokens * d_.q * d_.s);
    r_.take("d_q", d_.tokens * d_.q * d_.s);
    r_.take("d_k", d_.tokens * d_.k * d_.s);
    r_.take("d_v", d_.tokens * d_.k * d_.s);
    r_.moment("flash_scratch", d_.lse_s * flash_.queries * (2 * flash_.keys + 1));
    for (const char* used : {"d_attn", "attn_lse", "qkv"}) r_.give(used);
    r_.take("d_qkv", qkv());
    for (const char* part : {"d_q", "d_k", "d_v"}) r_.give(part);
    rotate();
  }

  const ModelConfig& config_;
  const Unit& unit_;
  const UnitSizes& sizes_;
  const UnitDims d_;
  const FlashBlocks flash_;
  Recorder r_;
};

class HeadPasses {
 public:
  HeadPasses(const ModelConfig& config, const UnitSizes& sizes)
      : d_(config, sizes),
        vocab_(config.vocab),
        chunk_(sizes.head_chunk > 0 ? sizes.head_chunk : d_.tokens) {
    r_.hold("input", path());
    r_.take("rstd", d_.tokens * d_.s);
    r_.take("normed", path());
  }

  MemoryEvents loss() {
    r_.give("rstd");
    for (std::int64_t begin = 0; begin < d_.tokens; begin += chunk_) {
      chunk_loss(std::min(chunk_, d_.tokens - begin));
      r_.give("columns");
      r_.give("logits");
    }
    r_.give("normed");
    r_.give("input");
    return r_.finish();
  }

  MemoryEvents loss_and_grad() {
    r_.take("d_in", path());
    for (std::int64_t begin = 0; begin < d_.tokens; begin += chunk_) {
      const std::int64_t n = std::min(chunk_, d_.tokens - begin);
      chunk_loss(n);
      r_.give("columns");
      r_.take("is_valid", n);
      r_.take("row_scale", n * d_.s);
      r_.give("is_valid");
      r_.give("row_scale");
      r_.give("logits");
    }
    r_.give("normed");
    r_.take("row_products", path());
    r_.take("row_sums", d_.tokens * d_.s);
    r_.take("d_norm", d_.h * d_.s);
    r_.give("row_products");
    r_.give("row_sums");
    r_.give("d_norm");
    r_.give("rstd");
    r_.give("input");
    return r_.finish();
  }

 private:
  std::int64_t path() const { return d_.tokens * d_.h * d_.s; }

  void chunk_loss(std::int64_t n) {
    r_.take("logits", n * vocab_ * d_.s);
    r_.take("columns", n * 8);
    r_.take("picked", n * d_.s);
    if (d_.s < 8) r_.moment("picked_f64", n * 8);
    r_.give("picked");
  }

  const UnitDims d_;
  const std::int64_t vocab_, chunk_;
  Recorder r_;
};

MemoryEvents block_events(BlockPasses block, UnitPass pass) {
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
      return block.input_grad();
    case UnitPass::kWeightGrad:
      return block.weight_grad();
    case UnitPass::kHeadGrad:
      break;
  }
  LS_CHECK(false, "a block has no such pass");
  return {};
}

MemoryEvents embed_events(std::int64_t boundary, UnitPass pass) {
  switch (pass) {
    case UnitPass::kForward:
    case UnitPass::kEvaluate:
      return {{"out", boundary}};
    case UnitPass::kInputGrad:
      return {};  // the gradient of the output is the weight work
    case UnitPass::kWeightGrad:
      return {{"d_out", -boundary}};
    default:
      LS_CHECK(false, "an embedding has no such pass");
      return {};
  }
}

MemoryEvents head_events(const ModelConfig& config, const UnitSizes& sizes, UnitPass pass) {
  switch (pass) {
    case UnitPass::kForward:
      return {};
    case UnitPass::kEvaluate:
      return HeadPasses(config, sizes).loss();
    case UnitPass::kHeadGrad:
      return HeadPasses(config, sizes).loss_and_grad();
    default:
      LS_CHECK(false, "a head has no such pass");
      return {};
  }
}

}  // namespace

std::int64_t extra(const MemoryEvents& events) {
  std::int64_t live = 0;
  std::int64_t most = 0;
  for (const MemoryEvent& event : events) most = std::max(most, live += event.bytes);
  return most;
}

std::int64_t net(const MemoryEvents& events) {
  std::int64_t live = 0;
  for (const MemoryEvent& event : events) live += event.bytes;
  return live;
}

MemoryEvents pass_events(const ModelConfig& config, const Unit& unit, const UnitSizes& sizes,
                         UnitPass pass) {
  LS_CHECK(check_unit_bytes(config).ok(), "no tables for ", config.name);
  LS_CHECK(sizes.tp == 1, "events of a pass that ", sizes.tp, " ranks share");
  switch (unit.kind) {
    case UnitKind::kEmbed:
      return embed_events(boundary_bytes(config, sizes), pass);
    case UnitKind::kBlock:
      return block_events(BlockPasses(config, unit, sizes), pass);
    case UnitKind::kHead:
      return head_events(config, sizes, pass);
    case UnitKind::kMtp:
      break;
  }
  LS_CHECK(false, "no passes for a unit of kind ", to_text(unit.kind));
  return {};
}

}  // namespace lockstep::arch

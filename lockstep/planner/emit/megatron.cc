// Arguments of pretrain_gpt.py, by megatron/training/arguments.py; of --cp-comm-type by
// megatron/core/transformer/transformer_config.py.
#include <algorithm>

#include "lockstep/planner/emit/script.h"
#include "lockstep/spec/step.h"

namespace lockstep::planner {
namespace {

using model::CpMethod;
using model::ModelConfig;

std::string_view missing_in(const ModelConfig& m) {
  if (m.norm_place != model::NormPlace::kBefore) return "norms after a block's halves";
  if (m.norm == model::NormKind::kPlain) return "norms without gains";
  if (m.qk_norm == model::QkNorm::kWide) return "norms over all heads together";
  if (m.attention_softcap > 0 || m.logit_softcap > 0) return "soft caps";
  if (m.scaled_embedding || m.query_scale_dim > 0) return "scaled embeddings and queries";
  if (m.moe.router_bias && m.moe.score == model::RouterScore::kSoftmax)
    return "selection biases of scores by softmax";
  if (!m.moe.norm_topk_prob && m.moe.score == model::RouterScore::kSigmoid)
    return "scores by sigmoid that do not add up to 1";
  return m.window_every > 1 ? "layers of two windows" : "";
}

void add_attention(const ModelConfig& m, Flags& flags) {
  flags.add("num-attention-heads", m.heads);
  if (m.mla.kv_rank > 0) {
    flags.add("multi-latent-attention");
    if (m.mla.q_rank > 0) flags.add("q-lora-rank", m.mla.q_rank);
    flags.add("kv-lora-rank", m.mla.kv_rank);
    flags.add("qk-head-dim", m.mla.nope_dim);
    flags.add("qk-pos-emb-head-dim", m.mla.rope_dim);
    flags.add("v-head-dim", m.mla.v_dim);
    flags.add("rope-type", "rope");
    flags.add("qk-layernorm");
  } else {
    if (m.kv_heads != m.heads) flags.add("group-query-attention");
    if (m.kv_heads != m.heads) flags.add("num-query-groups", m.kv_heads);
    flags.add("kv-channels", m.head_dim);
    if (m.qk_norm != model::QkNorm::kNone) flags.add("qk-layernorm");
  }
  if (m.window > 0) flags.add("window-size", join_parts("'(", m.window - 1, ",0)'"));
}

void add_positions(const ModelConfig& m, std::int64_t seq, Flags& flags) {
  flags.add("max-position-embeddings", std::max(m.max_positions, seq));
  const bool is_rotary = model::positions(m) == model::Positions::kRotary;
  flags.add("position-embedding-type", is_rotary ? "rope" : "learned_absolute");
  if (!is_rotary) return;
  flags.add("rotary-base", static_cast<std::int64_t>(m.rope_theta));
  if (m.rope_scaling.factor == 1) return;
  flags.add("use-rope-scaling");
  flags.add("rope-scaling-factor", m.rope_scaling.factor);
}

void add_experts(const ModelConfig& m, Flags& flags) {
  if (m.moe.experts == 0) return;
  flags.add("num-experts", m.moe.experts);
  flags.add("moe-router-topk", m.moe.top_k);
  flags.add("moe-ffn-hidden-size", m.moe.expert_ffn);
  if (m.moe.shared_ffn > 0) flags.add("moe-shared-expert-intermediate-size", m.moe.shared_ffn);
  if (m.moe.shared_gate) flags.add("moe-shared-expert-gate");
  if (m.moe.dense_layers > 0)
    flags.add("moe-layer-freq", join_parts("'([0]*", m.moe.dense_layers, "+[1]*",
                                           m.layers - m.moe.dense_layers, ")'"));
  if (m.moe.score == model::RouterScore::kSigmoid)
    flags.add("moe-router-score-function", to_text(m.moe.score));
  if (!m.moe.norm_topk_prob) flags.add("moe-router-pre-softmax");
  if (m.moe.router_bias) flags.add("moe-router-enable-expert-bias");
  if (m.moe.groups > 1) {
    flags.add("moe-router-num-groups", m.moe.groups);
    flags.add("moe-router-group-topk", m.moe.top_groups);
  }
  if (m.moe.routed_scale != 1.0) flags.add("moe-router-topk-scaling-factor", m.moe.routed_scale);
  flags.add("moe-grouped-gemm");
  flags.add("moe-token-dispatcher-type", "alltoall");
}

void add_model(const ModelConfig& m, std::int64_t seq, Flags& flags) {
  flags.add("num-layers", m.layers);
  flags.add("hidden-size", m.hidden);
  flags.add("ffn-hidden-size", m.ffn > 0 ? m.ffn : m.moe.expert_ffn);
  add_attention(m, flags);
  add_positions(m, seq, flags);
  const bool is_rms = m.norm != model::NormKind::kLayerNorm;
  flags.add("normalization", is_rms ? "RMSNorm" : "LayerNorm");
  flags.add("norm-epsilon", m.norm_eps);
  if (m.norm == model::NormKind::kRmsNormPlusOne) flags.add("apply-layernorm-1p");
  if (model::activation(m) == model::Activation::kSwiGlu) flags.add("swiglu");
  if (!m.linear_bias) flags.add("disable-bias-linear");
  if (m.qkv_bias && !m.linear_bias) flags.add("add-qkv-bias");
  if (!m.tied) flags.add("untie-embeddings-and-output-weights");
  flags.add("attention-dropout", 0);
  flags.add("hidden-dropout", 0);
  flags.add("init-method-std", m.init_std);
  flags.add("vocab-size", m.vocab);
  flags.add("make-vocab-size-divisible-by", 128);
  add_experts(m, flags);
}

// "'Et*9|t*9|t*8|t*6L'": embedding, layers and loss of each stage.
std::string stages_text(const std::vector<int>& layers) {
  std::string text = "'E";
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (i > 0) text += "|";
    if (layers[i] > 0) text += join_parts("t*", layers[i]);
  }
  return text + "L'";
}

void add_stages(const spec::Layout& l, std::int64_t layers, Flags& flags) {
  flags.add("pipeline-model-parallel-size", l.degrees.pp);
  if (l.degrees.pp == 1) return;
  const std::vector<int> held = spec::stage_layers(l, layers);
  if (std::ranges::max(held) != std::ranges::min(held))
    flags.add("pipeline-model-parallel-layout", stages_text(held));
  else if (l.chunks > 1)
    flags.add("num-virtual-stages-per-pipeline-rank", l.chunks);
  if (l.degrees.dp > 1 && l.order == mesh::Order()) flags.add("use-tp-pp-dp-mapping");
}

void add_zero(const spec::Layout& l, Flags& flags) {
  if (l.zero > 0) flags.add("use-distributed-optimizer");
  if (l.zero > 1) {
    flags.add("use-megatron-fsdp");
    flags.add("data-parallel-sharding-strategy",
              l.zero == 2 ? "optim_grads" : "optim_grads_params");
    flags.add("ckpt-format", "fsdp_dtensor");
  }
  if (l.degrees.dp_shard)
    flags.add("num-distributed-optimizer-instances", l.degrees.dp / *l.degrees.dp_shard);
  flags.add("overlap-grad-reduce");
  if (l.zero > 0) flags.add("overlap-param-gather");
}

void add_recompute(const spec::Recompute& recompute, Flags& flags) {
  if (!recompute.drop.block) return;
  flags.add("recompute-granularity", "full");
  flags.add("recompute-method", recompute.blocks.empty() ? "uniform" : "block");
  flags.add("recompute-num-layers",
            recompute.blocks.empty() ? 1 : std::ranges::max(recompute.blocks));
}

void add_layout(const Job& job, Flags& flags) {
  const spec::Layout& l = job.layout;
  const mesh::Degrees& d = l.degrees;
  flags.add("tensor-model-parallel-size", d.tp);
  if (d.tp > 1) flags.add("sequence-parallel");
  if (d.tp > 1) flags.add("tp-comm-overlap");
  add_stages(l, job.model.layers, flags);
  flags.add("context-parallel-size", d.cp);
  if (d.cp > 1)
    flags.add("cp-comm-type", l.context == CpMethod::kRing     ? "p2p"
                              : l.context == CpMethod::kGather ? "all_gather"
                                                               : "a2a");
  if (job.model.moe.experts > 0) {
    flags.add("expert-model-parallel-size", d.ep);
    flags.add("expert-tensor-parallel-size", d.etp);
  }
  add_zero(l, flags);
  add_recompute(l.recompute, flags);
}

void add_training(const Job& job, Flags& flags) {
  flags.add("micro-batch-size", job.batch.microbatch);
  flags.add("global-batch-size", job.batch.global_batch);
  flags.add("seq-length", job.batch.seq);
  flags.add("bf16");
  if (job.fp8) flags.add("fp8-format", "hybrid");
  if (job.fp8) flags.add("fp8-recipe", "tensorwise");
  flags.add("cross-entropy-loss-fusion");
  flags.add("lr", "\"$LR\"");
  flags.add("train-iters", "\"$TRAIN_ITERS\"");
  flags.add("data-path", "\"$DATA_PATH\"");
  flags.add("split", "99,1,0");
  flags.add("tokenizer-type", "HuggingFaceTokenizer");
  flags.add("tokenizer-model", "\"$TOKENIZER_MODEL\"");
  flags.add("save", "\"$CHECKPOINT_DIR\"");
  flags.add("load", "\"$CHECKPOINT_DIR\"");
  flags.add("save-interval", "\"${SAVE_INTERVAL:-1000}\"");
}

}  // namespace

Result<Script> emit_megatron(const Framework& framework, const Job& job) {
  if (const std::string_view what = missing_in(job.model); !what.empty())
    return no_words(framework, job, what, "plan it without --emit, or another model");
  Flags flags;
  add_model(job.model, job.batch.seq, flags);
  add_layout(job, flags);
  add_training(job, flags);
  // FSDP wants several hardware queues, tensor and context parallelism one.
  const bool is_fsdp = job.layout.zero > 1;
  return Script{join_parts(head_of(framework, job, "every node",
                                   {"MASTER_ADDR", "NODE_RANK", "DATA_PATH", "TOKENIZER_MODEL",
                                    "CHECKPOINT_DIR", "LR", "TRAIN_ITERS"}),
                           is_fsdp ? "unset CUDA_DEVICE_MAX_CONNECTIONS\n\n"
                                   : "export CUDA_DEVICE_MAX_CONNECTIONS=1\n\n",
                           kTorchrun, " pretrain_gpt.py", flags.take())};
}

}  // namespace lockstep::planner

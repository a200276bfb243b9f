#include <utility>

#include "lockstep/model/catalog_rows.h"

namespace lockstep::model {
namespace {

ModelConfig mixtral(const char* name, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                    std::int64_t ffn, std::int64_t positions) {
  ModelConfig c = shaped(name, Family::kMoe, {layers, hidden, heads, 8, 128, 0, 32000, positions});
  c.rope_theta = 1e6;
  c.moe = {.experts = 8, .top_k = 2, .expert_ffn = ffn};
  return c;
}

ModelConfig qwen(const char* name, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                 std::int64_t positions, const Moe& moe) {
  ModelConfig c = shaped(name, Family::kMoe, {layers, hidden, heads, 4, 128, 0, 151936, positions});
  c.rope_theta = 1e6;
  c.norm_eps = 1e-6;
  c.moe = moe;
  return c;
}

ModelConfig deepseek(const char* name, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                     std::int64_t ffn, std::int64_t vocab, const Moe& moe, std::int64_t q_rank) {
  ModelConfig c =
      shaped(name, Family::kDeepSeek, {layers, hidden, heads, heads, 0, ffn, vocab, 163840});
  c.norm_eps = 1e-6;
  c.moe = moe;
  c.mla = {.q_rank = q_rank, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .v_dim = 128};
  c.head_dim = c.mla.nope_dim + c.mla.rope_dim;
  c.init_std = 0.006;
  return c;
}

}  // namespace

std::vector<CatalogRow> expert_rows() {
  ModelConfig qwen2 = qwen(
      "qwen2-57b-a14b", 28, 3584, 28, 131072,
      {.experts = 64, .top_k = 8, .expert_ffn = 2560, .shared_ffn = 20480, .shared_gate = true});
  qwen2.qkv_bias = true;
  ModelConfig qwen3_small =
      qwen("qwen3-30b-a3b", 48, 2048, 32, 40960, {.experts = 128, .top_k = 8, .expert_ffn = 768});
  qwen3_small.qk_norm = QkNorm::kPerHead;
  ModelConfig qwen3_large = qwen("qwen3-235b-a22b", 94, 4096, 64, 40960,
                                 {.experts = 128, .top_k = 8, .expert_ffn = 1536});
  qwen3_large.qk_norm = QkNorm::kPerHead;
  return {
      {mixtral("mixtral-8x7b", 32, 4096, 32, 14336, 32768),
       "mistralai/Mixtral-8x7B-v0.1 config.json; arXiv 2401.04088 table 1"},
      {mixtral("mixtral-8x22b", 56, 6144, 48, 16384, 65536),
       "mistralai/Mixtral-8x22B-v0.1 config.json"},
      {std::move(qwen2), "Qwen/Qwen2-57B-A14B config.json; arXiv 2407.10671 table 1"},
      {std::move(qwen3_small), "Qwen/Qwen3-30B-A3B config.json; arXiv 2505.09388 table 2"},
      {std::move(qwen3_large), "Qwen/Qwen3-235B-A22B config.json; arXiv 2505.09388 table 2"},
      {deepseek(
           "deepseek-v2-lite", 27, 2048, 16, 10944, 102400,
           {.experts = 64, .top_k = 6, .expert_ffn = 1408, .shared_ffn = 2816, .dense_layers = 1},
           0),
       "deepseek-ai/DeepSeek-V2-Lite config.json; arXiv 2405.04434 appendix B"},
      {deepseek(
           "deepseek-v2", 60, 5120, 128, 12288, 102400,
           {.experts = 160, .top_k = 6, .expert_ffn = 1536, .shared_ffn = 3072, .dense_layers = 1},
           1536),
       "deepseek-ai/DeepSeek-V2 config.json; arXiv 2405.04434 section 3.1.2"},
      // The prediction layer of V3 is left off, as in its published size; mtp_layers = 1 adds it.
      {deepseek("deepseek-v3", 61, 7168, 128, 18432, 129280,
                {.experts = 256,
                 .top_k = 8,
                 .expert_ffn = 2048,
                 .shared_ffn = 2048,
                 .dense_layers = 3,
                 .router_bias = true},
                1536),
       "deepseek-ai/DeepSeek-V3 config.json; arXiv 2412.19437 section 4.2",
       {"deepseek-r1"}},
  };
}

}  // namespace lockstep::model

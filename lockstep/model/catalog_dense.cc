#include <utility>

#include "lockstep/model/catalog_rows.h"

namespace lockstep::model {
namespace {

ModelConfig gpt(const char* name, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                std::int64_t vocab, std::int64_t positions) {
  ModelConfig c =
      shaped(name, Family::kGpt2,
             {layers, hidden, heads, heads, hidden / heads, 4 * hidden, vocab, positions});
  c.tied = true;
  c.norm = NormKind::kLayerNorm;
  c.qkv_bias = true;
  c.linear_bias = true;
  return c;
}

ModelConfig llama(const char* name, const RowShape& shape, double rope_theta,
                  double norm_eps = 1e-5) {
  ModelConfig c = shaped(name, Family::kLlama, shape);
  c.rope_theta = rope_theta;
  c.norm_eps = norm_eps;
  return c;
}

// Llama 3.1 and later: trained on 8192 positions, then stretched.
ModelConfig stretched_llama(const char* name, const RowShape& shape, double factor) {
  ModelConfig c = llama(name, shape, 5e5);
  c.rope_scaling = {.factor = factor, .original_positions = 8192};
  return c;
}

ModelConfig qwen2(const char* name, const RowShape& shape, double norm_eps, bool tied) {
  ModelConfig c = llama(name, shape, 1e6, norm_eps);
  c.qkv_bias = true;
  c.tied = tied;
  return c;
}

ModelConfig qwen3(const char* name, const RowShape& shape, bool tied) {
  ModelConfig c = llama(name, shape, 1e6, 1e-6);
  c.qk_norm = QkNorm::kPerHead;
  c.tied = tied;
  return c;
}

ModelConfig olmo2(const char* name, const RowShape& shape) {
  ModelConfig c = llama(name, shape, 500000.0, 1e-6);
  c.qk_norm = QkNorm::kWide;
  c.norm_place = NormPlace::kAfter;
  return c;
}

ModelConfig gemma2(const char* name, const RowShape& shape, double query_scale_dim) {
  ModelConfig c = shaped(name, Family::kGemma2, shape);
  c.tied = true;
  c.norm = NormKind::kRmsNormPlusOne;
  c.norm_place = NormPlace::kBoth;
  c.norm_eps = 1e-6;
  c.window = 4096;
  c.window_every = 2;
  c.attention_softcap = 50.0;
  c.logit_softcap = 30.0;
  c.query_scale_dim = query_scale_dim;
  c.scaled_embedding = true;
  return c;
}

CatalogRow row(ModelConfig config, std::string_view source, std::vector<std::string> also = {}) {
  return {std::move(config), source, std::move(also)};
}

}  // namespace

ModelConfig shaped(const char* name, Family family, const RowShape& s) {
  ModelConfig c;
  c.name = name;
  c.family = family;
  c.layers = s.layers;
  c.hidden = s.hidden;
  c.heads = s.heads;
  c.kv_heads = s.kv_heads;
  c.head_dim = s.head_dim;
  c.ffn = s.ffn;
  c.vocab = s.vocab;
  c.max_positions = s.positions;
  return c;
}

std::vector<CatalogRow> gpt_rows() {
  return {
      row(gpt("gpt2-small", 12, 768, 12, 50257, 1024), "openai-community/gpt2 config.json",
          {"gpt2"}),
      row(gpt("gpt2-medium", 24, 1024, 16, 50257, 1024),
          "openai-community/gpt2-medium config.json"),
      row(gpt("gpt2-large", 36, 1280, 20, 50257, 1024), "openai-community/gpt2-large config.json"),
      row(gpt("gpt2-xl", 48, 1600, 25, 50257, 1024), "openai-community/gpt2-xl config.json"),
      row(gpt("gpt3-175b", 96, 12288, 96, 51200, 2048),
          "arXiv 2005.14165 table 2.1; vocabulary padded as in arXiv 2104.04473"),
  };
}

std::vector<CatalogRow> llama_rows() {
  ModelConfig mistral = llama("mistral-7b", {32, 4096, 32, 8, 128, 14336, 32000, 32768}, 10000.0);
  mistral.window = 4096;
  ModelConfig small =
      stretched_llama("llama3.2-1b", {16, 2048, 32, 8, 64, 8192, 128256, 131072}, 32);
  small.tied = true;
  ModelConfig medium =
      stretched_llama("llama3.2-3b", {28, 3072, 24, 8, 128, 8192, 128256, 131072}, 32);
  medium.tied = true;
  return {
      row(llama("llama2-7b", {32, 4096, 32, 32, 128, 11008, 32000, 4096}, 10000.0),
          "meta-llama/Llama-2-7b-hf config.json"),
      row(llama("llama2-13b", {40, 5120, 40, 40, 128, 13824, 32000, 4096}, 10000.0),
          "meta-llama/Llama-2-13b-hf config.json"),
      row(llama("llama2-70b", {80, 8192, 64, 8, 128, 28672, 32000, 4096}, 10000.0),
          "meta-llama/Llama-2-70b-hf config.json"),
      row(llama("llama3-8b", {32, 4096, 32, 8, 128, 14336, 128256, 8192}, 5e5),
          "meta-llama/Meta-Llama-3-8B config.json"),
      row(llama("llama3-70b", {80, 8192, 64, 8, 128, 28672, 128256, 8192}, 5e5),
          "meta-llama/Meta-Llama-3-70B config.json"),
      row(stretched_llama("llama3.1-8b", {32, 4096, 32, 8, 128, 14336, 128256, 131072}, 8),
          "meta-llama/Llama-3.1-8B config.json"),
      row(stretched_llama("llama3.1-70b", {80, 8192, 64, 8, 128, 28672, 128256, 131072}, 8),
          "meta-llama/Llama-3.1-70B config.json", {"llama3.3-70b"}),
      row(stretched_llama("llama3-405b", {126, 16384, 128, 8, 128, 53248, 128256, 131072}, 8),
          "meta-llama/Llama-3.1-405B config.json; arXiv 2407.21783 table 3", {"llama3.1-405b"}),
      row(std::move(small), "meta-llama/Llama-3.2-1B config.json"),
      row(std::move(medium), "meta-llama/Llama-3.2-3B config.json"),
      row(std::move(mistral), "mistralai/Mistral-7B-v0.1 config.json; arXiv 2310.06825 table 1"),
      row(llama("yi-6b", {32, 4096, 32, 4, 128, 11008, 64000, 4096}, 5e6),
          "01-ai/Yi-6B config.json; arXiv 2403.04652 table 1"),
      row(llama("yi-34b", {60, 7168, 56, 8, 128, 20480, 64000, 4096}, 5e6),
          "01-ai/Yi-34B config.json; arXiv 2403.04652 table 1"),
  };
}

std::vector<CatalogRow> qwen_rows() {
  return {
      row(qwen2("qwen2-0.5b", {24, 896, 14, 2, 64, 4864, 151936, 131072}, 1e-6, true),
          "Qwen/Qwen2-0.5B config.json"),
      row(qwen2("qwen2-1.5b", {28, 1536, 12, 2, 128, 8960, 151936, 131072}, 1e-6, true),
          "Qwen/Qwen2-1.5B config.json"),
      row(qwen2("qwen2-7b", {28, 3584, 28, 4, 128, 18944, 152064, 131072}, 1e-6, false),
          "Qwen/Qwen2-7B config.json", {"qwen2.5-7b"}),
      row(qwen2("qwen2-72b", {80, 8192, 64, 8, 128, 29568, 152064, 131072}, 1e-5, false),
          "Qwen/Qwen2-72B config.json", {"qwen2.5-72b"}),
      row(qwen2("qwen2.5-3b", {36, 2048, 16, 2, 128, 11008, 151936, 32768}, 1e-6, true),
          "Qwen/Qwen2.5-3B config.json"),
      row(qwen2("qwen2.5-14b", {48, 5120, 40, 8, 128, 13824, 152064, 131072}, 1e-5, false),
          "Qwen/Qwen2.5-14B config.json"),
      row(qwen2("qwen2.5-32b", {64, 5120, 40, 8, 128, 27648, 152064, 131072}, 1e-5, false),
          "Qwen/Qwen2.5-32B config.json"),
      row(qwen3("qwen3-0.6b", {28, 1024, 16, 8, 128, 3072, 151936, 40960}, true),
          "Qwen/Qwen3-0.6B config.json"),
      row(qwen3("qwen3-1.7b", {28, 2048, 16, 8, 128, 6144, 151936, 40960}, true),
          "Qwen/Qwen3-1.7B config.json"),
      row(qwen3("qwen3-4b", {36, 2560, 32, 8, 128, 9728, 151936, 40960}, true),
          "Qwen/Qwen3-4B config.json"),
      row(qwen3("qwen3-8b", {36, 4096, 32, 8, 128, 12288, 151936, 40960}, false),
          "Qwen/Qwen3-8B config.json"),
      row(qwen3("qwen3-14b", {40, 5120, 40, 8, 128, 17408, 151936, 40960}, false),
          "Qwen/Qwen3-14B config.json"),
      row(qwen3("qwen3-32b", {64, 5120, 64, 8, 128, 25600, 151936, 40960}, false),
          "Qwen/Qwen3-32B config.json"),
  };
}

std::vector<CatalogRow> olmo_and_gemma_rows() {
  ModelConfig olmo1 = llama("olmo-7b", {32, 4096, 32, 32, 128, 11008, 50304, 2048}, 10000.0);
  olmo1.norm = NormKind::kPlain;
  return {
      row(std::move(olmo1), "allenai/OLMo-7B-hf config.json; arXiv 2402.00838 section 2.1"),
      row(olmo2("olmo2-7b", {32, 4096, 32, 32, 128, 11008, 100352, 4096}),
          "allenai/OLMo-2-1124-7B config.json; arXiv 2501.00656 table 1"),
      row(olmo2("olmo2-13b", {40, 5120, 40, 40, 128, 13824, 100352, 4096}),
          "allenai/OLMo-2-1124-13B config.json; arXiv 2501.00656 table 1"),
      row(gemma2("gemma2-2b", {26, 2304, 8, 4, 256, 9216, 256000, 8192}, 256.0),
          "google/gemma-2-2b config.json; arXiv 2408.00118 table 1"),
      row(gemma2("gemma2-9b", {42, 3584, 16, 8, 256, 14336, 256000, 8192}, 256.0),
          "google/gemma-2-9b config.json; arXiv 2408.00118 table 1"),
      row(gemma2("gemma2-27b", {46, 4608, 32, 16, 128, 36864, 256000, 8192}, 144.0),
          "google/gemma-2-27b config.json; arXiv 2408.00118 table 1"),
  };
}

std::vector<CatalogRow> tiny_rows() {
  constexpr std::string_view kOurs = "Lockstep's own, for tests and first runs";
  ModelConfig mixtral = shaped("mixtral-tiny", Family::kMoe, {2, 64, 4, 2, 16, 0, 256, 128});
  mixtral.moe = {.experts = 4, .top_k = 2, .expert_ffn = 96};
  ModelConfig deepseek =
      shaped("deepseek-tiny", Family::kDeepSeek, {3, 64, 4, 4, 24, 128, 256, 128});
  deepseek.norm_eps = 1e-6;
  deepseek.moe = {.experts = 8,
                  .top_k = 2,
                  .expert_ffn = 32,
                  .shared_ffn = 32,
                  .dense_layers = 1,
                  .router_bias = true};
  deepseek.mla = {.q_rank = 32, .kv_rank = 16, .nope_dim = 16, .rope_dim = 8, .v_dim = 16};
  ModelConfig gemma = gemma2("gemma2-tiny", {4, 64, 4, 2, 16, 128, 256, 128}, 16.0);
  gemma.window = 32;
  return {
      row(gpt("gpt2-tiny", 2, 64, 4, 256, 128), kOurs),
      row(llama("llama-tiny", {4, 64, 4, 2, 16, 176, 256, 128}, 10000.0), kOurs),
      row(std::move(mixtral), kOurs),
      row(std::move(deepseek), kOurs),
      row(std::move(gemma), kOurs),
  };
}

}  // namespace lockstep::model

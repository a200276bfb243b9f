#include "lockstep/model/catalog.h"

#include <cctype>
#include <utility>

#include "lockstep/base/units.h"
#include "lockstep/config/suggest.h"

namespace lockstep::model {
namespace {

struct RowShape {
  std::int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, positions;
};

ModelConfig shaped(const char* name, Family family, const RowShape& s) {
  ModelConfig c = usual(family);
  c.name = name;
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

ModelConfig gpt(const char* name, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                std::int64_t vocab, std::int64_t positions) {
  return shaped(name, Family::kGpt2,
                {layers, hidden, heads, heads, hidden / heads, 4 * hidden, vocab, positions});
}

ModelConfig llama(const char* name, const RowShape& shape, double rope_theta,
                  double norm_eps = 1e-5) {
  ModelConfig c = shaped(name, Family::kLlama, shape);
  c.rope_theta = rope_theta;
  c.norm_eps = norm_eps;
  return c;
}

// Llama 3.1 and later: trained on 8192 positions, then stretched.
ModelConfig stretched_llama(const char* name, const RowShape& shape, double factor,
                            bool tied = false) {
  ModelConfig c = llama(name, shape, 5e5);
  c.tied = tied;
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
  c.norm_eps = 1e-6;
  c.window = 4096;
  c.attention_softcap = 50.0;
  c.logit_softcap = 30.0;
  c.query_scale_dim = query_scale_dim;
  return c;
}

CatalogRow row(ModelConfig config, std::string_view source, std::vector<std::string> also = {}) {
  return {std::move(config), source, std::move(also)};
}

ModelConfig mixtral(const char* name, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                    std::int64_t ffn, std::int64_t positions) {
  ModelConfig c = shaped(name, Family::kMoe, {layers, hidden, heads, 8, 128, 0, 32000, positions});
  c.rope_theta = 1e6;
  c.moe = {.experts = 8, .top_k = 2, .expert_ffn = ffn};
  return c;
}

ModelConfig qwen_moe(const char* name, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
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

// Mistral and Yi among them.
std::vector<CatalogRow> llama_rows() {
  ModelConfig mistral = llama("mistral-7b", {32, 4096, 32, 8, 128, 14336, 32000, 32768}, 10000.0);
  mistral.window = 4096;
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
      row(stretched_llama("llama3.2-1b", {16, 2048, 32, 8, 64, 8192, 128256, 131072}, 32, true),
          "meta-llama/Llama-3.2-1B config.json"),
      row(stretched_llama("llama3.2-3b", {28, 3072, 24, 8, 128, 8192, 128256, 131072}, 32, true),
          "meta-llama/Llama-3.2-3B config.json"),
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

std::vector<CatalogRow> expert_rows() {
  ModelConfig qwen2 = qwen_moe("qwen2-57b-a14b", 28, 3584, 28, 131072,
                               {.experts = 64,
                                .top_k = 8,
                                .expert_ffn = 2560,
                                .shared_ffn = 20480,
                                .shared_gate = true,
                                .norm_topk_prob = false});
  qwen2.qkv_bias = true;
  ModelConfig qwen3_small = qwen_moe("qwen3-30b-a3b", 48, 2048, 32, 40960,
                                     {.experts = 128, .top_k = 8, .expert_ffn = 768});
  qwen3_small.qk_norm = QkNorm::kPerHead;
  ModelConfig qwen3_large = qwen_moe("qwen3-235b-a22b", 94, 4096, 64, 40960,
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
  };
}

std::vector<CatalogRow> deepseek_rows() {
  return {
      {deepseek("deepseek-v2-lite", 27, 2048, 16, 10944, 102400,
                {.experts = 64,
                 .top_k = 6,
                 .expert_ffn = 1408,
                 .shared_ffn = 2816,
                 .dense_layers = 1,
                 .norm_topk_prob = false},
                0),
       "deepseek-ai/DeepSeek-V2-Lite config.json; arXiv 2405.04434 appendix B"},
      {deepseek("deepseek-v2", 60, 5120, 128, 12288, 102400,
                {.experts = 160,
                 .top_k = 6,
                 .expert_ffn = 1536,
                 .shared_ffn = 3072,
                 .dense_layers = 1,
                 .norm_topk_prob = false,
                 .groups = 8,
                 .top_groups = 3,
                 .routed_scale = 16.0},
                1536),
       "deepseek-ai/DeepSeek-V2 config.json; arXiv 2405.04434 section 3.1.2"},
      // The prediction layer of V3 is left off, as in its published size; mtp_layers = 1 adds it.
      {deepseek("deepseek-v3", 61, 7168, 128, 18432, 129280,
                {.experts = 256,
                 .top_k = 8,
                 .expert_ffn = 2048,
                 .shared_ffn = 2048,
                 .dense_layers = 3,
                 .router_bias = true,
                 .score = RouterScore::kSigmoid,
                 .groups = 8,
                 .top_groups = 4,
                 .routed_scale = 2.5},
                1536),
       "deepseek-ai/DeepSeek-V3 config.json; arXiv 2412.19437 section 4.2",
       {"deepseek-r1"}},
  };
}

// One per family, small enough to train on a laptop.
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
                  .router_bias = true,
                  .score = RouterScore::kSigmoid};
  deepseek.mla = {.q_rank = 32, .kv_rank = 16, .nope_dim = 16, .rope_dim = 8, .v_dim = 16};
  ModelConfig gemma = gemma2("gemma2-tiny", {4, 64, 4, 2, 16, 128, 256, 128}, 16.0);
  gemma.window = 32;
  return {
      row(gpt("gpt2-tiny", 2, 64, 4, 256, 128), kOurs),
      row(llama("llama-tiny", {4, 64, 4, 2, 16, 176, 256, 128}, 10000.0), kOurs),
      row(olmo2("olmo2-tiny", {4, 64, 4, 2, 16, 176, 256, 128}), kOurs),
      row(std::move(mixtral), kOurs),
      row(std::move(deepseek), kOurs),
      row(std::move(gemma), kOurs),
  };
}
std::string folded(std::string_view name) {
  std::string out;
  for (const char letter : name) {
    const auto byte = static_cast<unsigned char>(letter);
    if (letter == '_' || letter == '.')
      out += '-';
    else
      out += static_cast<char>(std::tolower(byte));
  }
  return out;
}

std::vector<CatalogRow> all_rows() {
  std::vector<CatalogRow> rows;
  for (auto* part : {gpt_rows, llama_rows, qwen_rows, olmo_and_gemma_rows, expert_rows,
                     deepseek_rows, tiny_rows})
    for (CatalogRow& row : part()) rows.push_back(std::move(row));
  return rows;
}

std::string_view stem(std::string_view name) { return name.substr(0, name.find('-')); }

// A name with nothing near it still deserves a lead: rows whose first word is near its first word.
std::string suggestion(std::string_view name) {
  std::vector<std::string> names;
  std::vector<std::string> stems;
  for (const CatalogRow& row : catalog()) {
    names.push_back(row.config.name);
    names.insert(names.end(), row.also.begin(), row.also.end());
  }
  const std::string hint = config::did_you_mean(name, names);
  if (!hint.empty()) return hint + " `lockstep model --list` shows all";
  for (const std::string& candidate : names) stems.emplace_back(stem(candidate));
  const std::vector<std::string> near = config::nearest(stem(folded(name)), stems, 1);
  if (near.empty())
    return strf("`lockstep model --list` shows the %zu known models", catalog().size());
  std::vector<std::string> kin;
  for (const std::string& candidate : names)
    if (stem(candidate) == near.front()) kin.push_back(candidate);
  if (kin.size() > 5) kin.resize(5);
  return "near it are " + config::listed(kin) + "; `lockstep model --list` shows all";
}

}  // namespace

std::span<const CatalogRow> catalog() {
  static const std::vector<CatalogRow> rows = all_rows();
  return rows;
}

Result<CatalogRow> find(std::string_view name) {
  const std::string wanted = folded(name);
  for (const CatalogRow& row : catalog()) {
    if (folded(row.config.name) == wanted) return row;
    for (const std::string& other : row.also)
      if (folded(other) == wanted) return row;
  }
  return Error{Code::kUnknownModel, strf("no model is called `%s`", std::string(name).c_str()),
               suggestion(name)};
}

}  // namespace lockstep::model

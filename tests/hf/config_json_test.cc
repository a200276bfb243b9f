#include "lockstep/hf/config_json.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <tuple>
#include <utility>

#include "lockstep/model/arch.h"
#include "lockstep/model/catalog.h"
#include "lockstep/model/hf_names.h"
#include "lockstep/model/unit_bytes.h"
#include "tests/hf/tiny.h"

namespace lockstep::hf {
namespace {

struct Read {
  std::optional<HfConfig> config;
  std::string text;
};

Read read(const Json& json) {
  config::Report report;
  Read made{read_config(json, "config.json", report), {}};
  made.text = report.text("config.json", false);
  EXPECT_EQ(made.config.has_value(), report.ok()) << made.text;
  return made;
}

Read priced(const Json& json) {
  config::Report report;
  Read made{read_config(json, "config.json", report, Use::kPrice), {}};
  made.text = report.text("config.json", false);
  return made;
}

Json parsed(const char* text) { return *Json::parse(text); }

// As transformers 4 and 5 write them.
constexpr const char* kLlama = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
  "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
  "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_act": "silu", "rms_norm_eps": 1e-05,
  "max_position_embeddings": 131072, "rope_theta": 500000.0, "attention_bias": false, "mlp_bias": false,
  "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "pretraining_tp": 1, "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": [128001],
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "initializer_range": 0.02})";

TEST(ConfigJson, ReadsLlama31) {
  Read got = read(parsed(kLlama));
  ASSERT_TRUE(got.config) << got.text;
  EXPECT_TRUE(got.config->notes.empty());
  model::ModelConfig known = model::find("llama3.1-8b")->config;
  got.config->model.name = known.name;
  EXPECT_EQ(got.config->model, known);
}

TEST(ConfigJson, BothWaysOfRotarySettingsAreTheSame) {
  Json newer = parsed(kLlama);
  newer.set("rope_scaling", nullptr).set("rope_theta", nullptr);
  newer.set("rope_parameters",
            parsed(R"({"factor": 8.0, "high_freq_factor": 4.0, "rope_theta": 500000.0,
      "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"})"));
  EXPECT_EQ(read(newer).config->model, read(parsed(kLlama)).config->model);
  newer.set("rope_parameters", parsed(R"({"rope_theta": 2.5e5, "rope_type": "default"})"));
  const model::ModelConfig plain = read(newer).config->model;
  EXPECT_EQ(plain.rope_theta, 2.5e5);
  EXPECT_EQ(plain.rope_scaling, model::RopeScaling{});
}

TEST(ConfigJson, ReadsTheHubsGpt2AndSaysThatDropoutIsLeftOut) {
  Read got =
      read(parsed(R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256,
    "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024,
    "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1,
    "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true,
    "summary_type": "cls_index", "summary_use_proj": true,
    "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
    "vocab_size": 50257, "unsloth_version": "1"})"));
  ASSERT_TRUE(got.config) << got.text;
  ASSERT_EQ(got.config->notes.size(), 4U);
  EXPECT_EQ(got.config->notes[0], "resid_pdrop 0.1 is left out: Lockstep trains without dropout");
  EXPECT_NE(got.config->notes[3].find("ignored: unsloth_version"), std::string::npos);
  got.config->model.name = "gpt2-small";
  EXPECT_EQ(got.config->model, model::find("gpt2-small")->config);
}

TEST(ConfigJson, WhatIsWrittenIsReadBack) {
  int written = 0;
  const auto expect_back = [&](const model::ModelConfig& model) {
    const Result<Json> json = config_json(model, DType::kBF16);
    ASSERT_TRUE(json.ok()) << json.error().message;
    EXPECT_EQ(json->find("model_type")->as_text(), model::hf_model_type(model));
    Read got = read(*Json::parse(json->dump(2)));
    ASSERT_TRUE(got.config) << got.text;
    EXPECT_TRUE(got.config->notes.empty());
    got.config->model.name = model.name;
    EXPECT_EQ(got.config->model, model);
    ++written;
  };
  for (const model::ModelConfig& model : tiny_models()) expect_back(model);
  for (const model::CatalogRow& row : model::catalog())
    if (config_json(row.config, DType::kF32).ok()) expect_back(row.config);
  EXPECT_GE(written, 30);
}

TEST(ConfigJson, AWindowThatNoSequenceFillsIsWrittenAsNone) {
  model::ModelConfig mistral = llama_like("mistral");
  for (const std::int64_t window : {20, 40, 50}) {
    mistral.window = window;
    const Json json = *config_json(mistral, DType::kF32);
    EXPECT_EQ(json.find("sliding_window")->is_null(), window >= mistral.max_positions);
  }
}

TEST(ConfigJson, EveryMistakeIsNamedAtOnce) {
  Json json = parsed(kLlama);
  json.set("hidden_act", "gelu").set("attention_bias", true).set("mlp_bias", true);
  json.set("vocab_size", nullptr).set("rms_norm_eps", "small");
  json.set("rope_scaling", parsed(R"({"type": "yarn", "factor": 4.0})"));
  json.set("quantization_config", parsed(R"({"bits": 4})"));
  json.set("layer_types", Json::array({"full_attention", "sliding_attention"}));
  const Read got = read(json);
  EXPECT_FALSE(got.config);
  for (const char* part :
       {R"(config.json: hidden_act is "gelu", an activation that is not written)", "it may be silu",
        "attention_bias is true", "mlp_bias is true", "vocab_size is missing",
        R"(rms_norm_eps is "small", but it must be a number)",
        R"(rope_scaling.type is "yarn", a rule that is not written)", "quantization_config is",
        "layer_types is"})
    EXPECT_NE(got.text.find(part), std::string::npos) << part << "\n" << got.text;
}

TEST(ConfigJson, OtherModelsAreRefused) {
  EXPECT_NE(read(parsed(R"({"model_type": "dbrx"})")).text.find("model_type is \"dbrx\""),
            std::string::npos);
  EXPECT_FALSE(read(parsed("[]")).config);
  EXPECT_FALSE(read(parsed("{}")).config);
  Json window = parsed(kLlama);
  window.set("model_type", "qwen2").set("use_sliding_window", true).set("max_window_layers", 31);
  EXPECT_FALSE(read(window).config);
  window.set("max_window_layers", 32);  // no layer is left that has one
  window.set("rope_scaling", nullptr);
  EXPECT_TRUE(read(window).config);
  Json heads = parsed(kLlama);
  heads.set("num_key_value_heads", 5);
  EXPECT_NE(read(heads).text.find("kv_heads"), std::string::npos);
}

// What the hub's files say of sizes, with keys that no price depends on.
constexpr std::pair<const char*, const char*> kPriced[] = {
    {"mixtral-8x7b", R"({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
      "max_position_embeddings": 32768, "num_attention_heads": 32, "num_experts_per_tok": 2,
      "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "rms_norm_eps": 1e-5,
      "rope_theta": 1e6, "router_aux_loss_coef": 0.02, "sliding_window": null, "vocab_size": 32000})"},
    {"qwen3-30b-a3b",
     R"({"model_type": "qwen3_moe", "norm_topk_prob": true, "decoder_sparse_step": 1, "head_dim": 128,
      "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 40960,
      "max_window_layers": 48, "mlp_only_layers": [], "moe_intermediate_size": 768,
      "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
      "num_key_value_heads": 4, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "sliding_window": null,
      "use_sliding_window": false, "vocab_size": 151936})"},
    {"qwen2-57b-a14b", R"({"model_type": "qwen2_moe", "decoder_sparse_step": 1, "hidden_size": 3584,
      "intermediate_size": 18944, "max_position_embeddings": 131072, "moe_intermediate_size": 2560,
      "num_attention_heads": 28, "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 28,
      "num_key_value_heads": 4, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "vocab_size": 151936,
      "shared_expert_intermediate_size": 20480, "sliding_window": 65536, "max_window_layers": 28})"},
    {"deepseek-v3", R"({"model_type": "deepseek_v3", "aux_loss_alpha": 0.001, "ep_size": 1,
      "first_k_dense_replace": 3, "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512,
      "max_position_embeddings": 163840, "moe_intermediate_size": 2048, "moe_layer_freq": 1,
      "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "num_attention_heads": 128,
      "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128,
      "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
      "qk_rope_head_dim": 64, "quantization_config": {"fmt": "e4m3", "quant_method": "fp8"},
      "rms_norm_eps": 1e-6, "rope_scaling": {"beta_fast": 32, "factor": 40, "type": "yarn"},
      "rope_theta": 10000, "topk_method": "noaux_tc", "v_head_dim": 128, "vocab_size": 129280})"},
    {"deepseek-v2-lite", R"({"model_type": "deepseek_v2", "first_k_dense_replace": 1,
      "hidden_size": 2048, "intermediate_size": 10944, "kv_lora_rank": 512,
      "max_position_embeddings": 163840, "moe_intermediate_size": 1408, "n_routed_experts": 64,
      "n_shared_experts": 2, "num_attention_heads": 16, "num_experts_per_tok": 6,
      "num_hidden_layers": 27, "num_key_value_heads": 16, "q_lora_rank": null,
      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-6, "v_head_dim": 128,
      "vocab_size": 102400})"},
    {"gemma2-9b", R"({"model_type": "gemma2", "attn_logit_softcapping": 50.0,
      "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
      "hidden_size": 3584, "intermediate_size": 14336, "max_position_embeddings": 8192,
      "num_attention_heads": 16, "num_hidden_layers": 42, "num_key_value_heads": 8,
      "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-6, "sliding_window": 4096,
      "vocab_size": 256000})"},
    {"olmo2-7b", R"({"model_type": "olmo2", "hidden_size": 4096, "intermediate_size": 11008,
      "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
      "rms_norm_eps": 1e-6, "rope_theta": 5e5, "vocab_size": 100352})"},
    {"olmo-7b", R"({"model_type": "olmo", "clip_qkv": null, "hidden_size": 4096,
      "intermediate_size": 11008, "max_position_embeddings": 2048, "num_attention_heads": 32,
      "num_hidden_layers": 32, "vocab_size": 50304})"}};

TEST(ConfigJson, WhatIsOnlyPricedIsTheCataloguesRow) {
  for (const auto& [name, text] : kPriced) {
    SCOPED_TRACE(name);
    Read got = priced(parsed(text));
    ASSERT_TRUE(got.config) << got.text;
    model::ModelConfig known = model::find(name)->config;
    got.config->model.name = known.name;
    got.config->model.init_std = known.init_std;
    EXPECT_EQ(got.config->model, known);
    const bool trains = model::unsupported(known).empty();
    EXPECT_EQ(read(parsed(text)).config.has_value(), trains) << "what trains is read for that too";
    const bool differs = known.name == "deepseek-v3";  // yarn, fp8 weights, a prediction layer
    EXPECT_EQ(got.config->notes.size(), differs ? 3U : 0U);
  }
}

// Prices are of sizes: what changes them is refused, other traits are notes.
TEST(ConfigJson, PricesNeedSizesAlone) {
  Json json = parsed(kLlama);
  json.set("hidden_act", "gelu").set("quantization_config", parsed(R"({"bits": 4})"));
  const Read got = priced(json);
  ASSERT_TRUE(got.config) << got.text;
  EXPECT_EQ(got.config->notes.size(), 2U);
  const std::pair<const char*, Json> wrong[] = {{"hidden_size", Json()},
                                                {"layer_types", Json::array({"sliding_attention"})},
                                                {"model_type", "t5"}};
  for (const auto& [key, value] : wrong) {
    Json other = parsed(kLlama);
    other.set(key, value);
    EXPECT_NE(priced(other).text.find(key), std::string::npos);
  }
  Json sparse = parsed(kPriced[1].second);
  sparse.set("decoder_sparse_step", 2);
  EXPECT_FALSE(priced(sparse).config);
  Json unknown = parsed(kLlama);
  unknown.set("model_type", "mamba");
  for (const char* name : {"llama", "deepseek_v3", "gemma2"})
    EXPECT_NE(priced(unknown).text.find(name), std::string::npos);
}

// As the defaults of transformers 5.15's classes are.
TEST(ConfigJson, AbsentKeysMeanWhatTransformersTakes) {
  for (const auto& [name, eps, theta] : {std::tuple("mixtral-8x7b", 1e-5, 1e6),
                                         {"qwen3-30b-a3b", 1e-6, 1e4},
                                         {"olmo2-tiny", 1e-5, 1e4},
                                         {"gemma2-tiny", 1e-6, 1e4},
                                         {"llama3-8b", 1e-6, 1e4}}) {
    Json::Object left = config_json(model::find(name)->config, DType::kF32)->members();
    std::erase_if(left, [](const Json::Member& member) {
      return member.key == "rms_norm_eps" || member.key == "rope_theta";
    });
    const Read got = read(Json::object(std::move(left)));
    ASSERT_TRUE(got.config) << name << got.text;
    EXPECT_EQ(got.config->model.norm_eps, eps) << name;
    EXPECT_EQ(got.config->model.rope_theta, theta) << name;
  }
}

// What transformers takes where a gemma2 says nothing, and what it does not compute like us.
TEST(ConfigJson, Gemma2MeansWhatTransformersDoes) {
  for (const double scale : {0.0, 12.5}) {
    model::ModelConfig odd = model::find("gemma2-tiny")->config;
    odd.query_scale_dim = scale;
    EXPECT_FALSE(config_json(odd, DType::kF32).ok()) << scale;
  }
  const Json base = *config_json(model::find("gemma2-tiny")->config, DType::kF32);
  const auto with = [&](const char* key, Json value) {
    Json json = base;
    json.set(key, std::move(value));
    return read(json);
  };
  const auto without = [&](const char* key) {
    Json::Object left = base.members();
    std::erase_if(left, [&](const Json::Member& member) { return member.key == key; });
    return read(Json::object(std::move(left)));
  };
  EXPECT_EQ(without("attn_logit_softcapping").config->model.attention_softcap, 50.0);
  EXPECT_EQ(without("final_logit_softcapping").config->model.logit_softcap, 30.0);
  EXPECT_EQ(with("final_logit_softcapping", nullptr).config->model.logit_softcap, 0.0);
  const char *const local = "sliding_attention", *const global = "full_attention";
  EXPECT_TRUE(with("layer_types", Json::array({local, global, local, global})).config);
  EXPECT_FALSE(with("layer_types", Json::array({global, local, global, local})).config);
  EXPECT_FALSE(with("layer_types", Json::array({local, local, local, local})).config);
  EXPECT_FALSE(with("hidden_activation", "gelu").config);
  EXPECT_FALSE(with("use_bidirectional_attention", true).config);
  EXPECT_FALSE(with("attention_bias", true).config);
}

TEST(ConfigJson, TraitsWithoutAClassAreNamed) {
  const auto refusal = [](const model::ModelConfig& model) {
    const Result<Json> json = config_json(model, DType::kF32);
    EXPECT_FALSE(json.ok());
    if (json.ok()) return std::string();
    EXPECT_EQ(json.error().code, Code::kNoHfForm);
    return json.error().message;
  };
  model::ModelConfig mixed = llama_like("mixed");
  mixed.qk_norm = model::QkNorm::kPerHead;
  mixed.qkv_bias = true;
  EXPECT_NE(refusal(mixed).find("qwen3 of transformers has not: qkv_bias = true"),
            std::string::npos)
      << refusal(mixed);
  model::ModelConfig windowed = llama_like("windowed");
  windowed.qkv_bias = true;
  windowed.window = 16;
  EXPECT_NE(refusal(windowed).find("window = 16"), std::string::npos);
  EXPECT_FALSE(refusal(model::find("olmo-7b")->config).empty());
  EXPECT_FALSE(refusal(model::find("deepseek-v3")->config).empty());
  model::ModelConfig wide = llama_like("wide");
  wide.heads = 5;
  wide.kv_heads = 1;
  EXPECT_NE(refusal(wide).find("divisible"), std::string::npos);
}

// The same words whether the file is named or its directory.
TEST(ConfigJson, ABrokenFileIsToldOnceWithItsPlace) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "broken_config";
  std::filesystem::create_directories(folder);
  const std::string file = (folder / "config.json").string();
  std::ofstream(file) << R"({"model_type": "mistral", )";
  for (const std::string& name : {folder.string(), file}) {
    config::Report report;
    EXPECT_FALSE(find_model(name, report));
    EXPECT_EQ(report.num_errors(), 1);
    EXPECT_EQ(report.first_error().code, Code::kSyntax) << report.text("", false);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep::hf

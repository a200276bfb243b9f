#include "lockstep/hf/config_json.h"

#include <gtest/gtest.h>

#include "lockstep/model/arch.h"
#include "lockstep/model/catalog.h"
#include "lockstep/model/hf_names.h"
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
  EXPECT_NE(read(parsed(R"({"model_type": "mixtral"})")).text.find("model_type is \"mixtral\""),
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
  EXPECT_FALSE(refusal(model::find("olmo2-7b")->config).empty());
  EXPECT_FALSE(refusal(model::find("mixtral-tiny")->config).empty());
  model::ModelConfig wide = llama_like("wide");
  wide.heads = 5;
  wide.kv_heads = 1;
  EXPECT_NE(refusal(wide).find("divisible"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::hf

#include "lockstep/hf/config_json.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string_view>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/text.h"
#include "lockstep/model/hf_names.h"
#include "lockstep/model/user_model.h"

namespace lockstep::hf {
namespace {

// Typed look-up in an object of a config.json: every wrong value is reported, every key asked for
// is remembered, so that the others can be told apart. Refers to its arguments. A key whose value
// is null counts as absent.
class ConfigKeys {
 public:
  // `where` goes before the keys in messages: "config.json: rope_scaling.". REQUIRES: an object.
  ConfigKeys(const Json& object, std::string where, config::Report& report)
      : object_(object), where_(std::move(where)), report_(report) {}

  const Json* find(const std::string& key) {  // null pointer: absent
    read_.insert(key);
    const Json* const value = object_.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  bool is_null(const std::string& key) const {
    const Json* const value = object_.find(key);
    return value != nullptr && value->is_null();
  }

  // Absent is an error.
  std::int64_t size(const std::string& key) { return require(key), size(key, 0); }
  double real(const std::string& key) { return require(key), real(key, 0.0); }
  // Absent means `otherwise`. After an error, too.
  std::int64_t size(const std::string& key, std::int64_t otherwise) {
    const Json* const value = typed(key, &Json::is_int, "a whole number");
    return value == nullptr ? otherwise : value->as_int();
  }
  double real(const std::string& key, double otherwise) {
    const Json* const value = typed(key, &Json::is_number, "a number");
    return value == nullptr ? otherwise : value->as_real();
  }
  bool flag(const std::string& key, bool otherwise) {
    const Json* const value = typed(key, &Json::is_bool, "true or false");
    return value == nullptr ? otherwise : value->as_bool();
  }
  std::string text(const std::string& key, const std::string& otherwise) {
    const Json* const value = typed(key, &Json::is_text, "text");
    return value == nullptr ? otherwise : value->as_text();
  }

  // "config.json: `key` is `value`, " and why that cannot be.
  void refuse(const std::string& key, const std::string& why, const std::string& help = "") {
    const Json* const value = find(key);
    const std::string shown = value == nullptr ? "" : " is " + value->dump();
    report_.add(Error{Code::kBadHfConfig, where_ + key + shown + ", " + why, help});
  }
  // Refuses the key unless it is absent or says `wanted`.
  void only(const std::string& key, bool wanted, const std::string& why) {
    if (flag(key, wanted) != wanted) refuse(key, why);
  }

  // Keys that were not asked for, in the order of the file.
  std::vector<std::string> unread() const {
    std::vector<std::string> keys;
    for (const auto& [key, value] : object_.members())
      if (!read_.contains(key)) keys.push_back(key);
    return keys;
  }

 private:
  // Null pointer: absent, or refused.
  const Json* typed(const std::string& key, bool (Json::*is_wanted)() const, const char* wanted) {
    const Json* const value = find(key);
    if (value == nullptr || (value->*is_wanted)()) return value;
    refuse(key, std::string("but it must be ") + wanted);
    return nullptr;
  }
  void require(const std::string& key) {
    if (find(key) == nullptr)
      report_.add(Error{Code::kBadHfConfig, where_ + key + " is missing",
                        "a directory that save_pretrained() of transformers wrote has it"});
  }

  const Json& object_;
  const std::string where_;
  config::Report& report_;
  std::set<std::string, std::less<>> read_;
};

using model::Family;
using model::ModelConfig;

struct Type {
  std::string_view model_type;
  std::string_view architecture;
};
constexpr std::array kTypes = {Type{"gpt2", "GPT2LMHeadModel"}, Type{"llama", "LlamaForCausalLM"},
                               Type{"mistral", "MistralForCausalLM"},
                               Type{"qwen2", "Qwen2ForCausalLM"},
                               Type{"qwen3", "Qwen3ForCausalLM"}};

// Keys that say nothing about what the model computes: where it comes from, which tokens are
// special, how transformers stores, caches and generates, and settings of its other classes
// (classifiers).
constexpr std::string_view kSilent =
    "architectures model_type torch_dtype dtype transformers_version _name_or_path name_or_path "
    "bos_token_id eos_token_id pad_token_id sep_token_id cls_token_id decoder_start_token_id "
    "use_cache pretraining_tp n_ctx summary_type summary_use_proj summary_activation "
    "summary_proj_to_labels summary_first_dropout task_specific_params gradient_checkpointing "
    "id2label label2id tokenizer_class output_attentions output_hidden_states return_dict "
    "is_encoder_decoder problem_type reorder_and_upcast_attn chunk_size_feed_forward "
    "_attn_implementation_autoset";

// --- read ---

class Reader {
 public:
  Reader(const Json& json, const std::string& file, config::Report& report)
      : keys_(json, file + ": ", report), file_(file), report_(report) {}

  void read(std::string_view type) {
    if (keys_.find("quantization_config") != nullptr)
      keys_.refuse("quantization_config", "but quantized weights cannot be trained",
                   "start from the unquantized model");
    if (type == "gpt2")
      gpt2();
    else
      rotary(type);
    note_ignored();
  }

  HfConfig take() { return std::move(read_); }

 private:
  void gpt2() {
    ModelConfig& m = read_.model;
    m.family = Family::kGpt2;
    m.norm = model::NormKind::kLayerNorm;
    m.qkv_bias = m.linear_bias = true;
    m.layers = keys_.size("n_layer");
    m.hidden = keys_.size("n_embd");
    m.heads = m.kv_heads = keys_.size("n_head");
    m.head_dim = m.heads > 0 ? m.hidden / m.heads : 0;
    m.ffn = keys_.size("n_inner", 4 * m.hidden);
    m.vocab = keys_.size("vocab_size");
    m.max_positions = keys_.size("n_positions");
    m.tied = keys_.flag("tie_word_embeddings", true);
    m.norm_eps = keys_.real("layer_norm_epsilon", 1e-5);
    m.init_std = keys_.real("initializer_range", 0.02);
    activation("activation_function", "gelu_new", "gelu_pytorch_tanh");
    keys_.only("scale_attn_weights", true, "but scores are always divided by the root of head_dim");
    keys_.only("scale_attn_by_inverse_layer_idx", false, "a scale that is not written");
    keys_.only("add_cross_attention", false, "but there is no encoder to attend to");
    dropout({"resid_pdrop", "embd_pdrop", "attn_pdrop"});
  }

  void rotary(std::string_view type) {
    const bool qwen3 = type == "qwen3";
    ModelConfig& m = read_.model;
    m.layers = keys_.size("num_hidden_layers");
    m.hidden = keys_.size("hidden_size");
    m.heads = keys_.size("num_attention_heads");
    // What transformers takes when the key is absent.
    m.kv_heads =
        keys_.size("num_key_value_heads", type == "llama" ? m.heads : (type == "mistral" ? 8 : 32));
    m.head_dim = keys_.size("head_dim", qwen3 ? 128 : (m.heads > 0 ? m.hidden / m.heads : 0));
    m.ffn = keys_.size("intermediate_size");
    m.vocab = keys_.size("vocab_size");
    m.max_positions = keys_.size("max_position_embeddings");
    m.tied = keys_.flag("tie_word_embeddings", false);
    m.norm_eps = keys_.real("rms_norm_eps", 1e-6);
    m.init_std = keys_.real("initializer_range", 0.02);
    m.qkv_bias = type == "qwen2";
    if (qwen3) m.qk_norm = model::QkNorm::kPerHead;
    activation("hidden_act", "silu", "swish");
    if (type == "llama" || qwen3)
      keys_.only("attention_bias", false,
                 "but a bias on the output of attention is not written; qwen2's, on query, key and "
                 "value alone, is");
    if (type == "llama") keys_.only("mlp_bias", false, "but MLPs here have no biases");
    windows(type);
    rope();
    dropout({"attention_dropout"});
  }

  void activation(const char* key, const std::string& usual, const std::string& also) {
    const std::string name = keys_.text(key, usual);
    if (name != usual && name != also)
      keys_.refuse(key, "an activation that is not written", "it may be " + usual);
  }

  void windows(std::string_view type) {
    ModelConfig& m = read_.model;
    if (type == "mistral") {
      const std::int64_t usual = keys_.is_null("sliding_window") ? m.max_positions : 4096;
      m.window = keys_.size("sliding_window", usual);
    } else if (type != "llama") {
      const std::int64_t global = keys_.size("max_window_layers", 28);
      keys_.find("sliding_window");
      if (keys_.flag("use_sliding_window", false) && global < m.layers)
        keys_.refuse("use_sliding_window", "but windows on some layers only are not written");
    }
    const Json* const kinds = keys_.find("layer_types");
    if (kinds == nullptr) return;
    const char* const wanted = type == "mistral" ? "sliding_attention" : "full_attention";
    const auto is_usual = [&](const Json& kind) {
      return kind.is_text() && kind.as_text() == wanted;
    };
    if (!kinds->is_array() || !std::ranges::all_of(kinds->items(), is_usual))
      keys_.refuse("layer_types", std::string("but all layers must be ") + wanted);
  }

  void rope() {
    if (keys_.real("partial_rotary_factor", 1.0) != 1.0)
      keys_.refuse("partial_rotary_factor", "but all of a head is turned here");
    read_.model.rope_theta = keys_.real("rope_theta", 10000.0);
    const bool newer = keys_.find("rope_parameters") != nullptr;
    const char* const name = newer ? "rope_parameters" : "rope_scaling";
    const Json* const table = keys_.find(name);
    keys_.find("rope_scaling");
    if (table == nullptr) return;
    if (!table->is_object()) return keys_.refuse(name, "but it must be an object");
    ConfigKeys rope(*table, file_ + ": " + name + ".", report_);
    read_.model.rope_theta = rope.real("rope_theta", read_.model.rope_theta);
    const char* const key = rope.find("rope_type") != nullptr ? "rope_type" : "type";
    const std::string kind = rope.text(key, "default");
    if (kind == "llama3") {
      read_.model.rope_scaling = {rope.real("factor"), rope.real("low_freq_factor"),
                                  rope.real("high_freq_factor"),
                                  rope.size("original_max_position_embeddings")};
      if (read_.model.rope_scaling.factor == 1.0) read_.model.rope_scaling = {};
    } else if (kind != "default") {
      return rope.refuse(key, "a rule that is not written", "llama3 and default are");
    }
    for (const std::string& other : rope.unread())
      rope.refuse(other, "which has no meaning for rope type " + kind);
  }

  void dropout(const std::vector<std::string>& names) {
    for (const std::string& name : names)
      if (const double share = keys_.real(name, 0.0); share != 0.0)
        read_.notes.push_back(name + " " + Json(share).dump() +
                              " is left out: Lockstep trains without dropout");
  }

  void note_ignored() {
    const std::vector<std::string_view> silent = split(kSilent, ' ');
    std::string unknown;
    for (const std::string& key : keys_.unread())
      if (std::ranges::find(silent, key) == silent.end())
        unknown += (unknown.empty() ? "" : ", ") + key;
    if (!unknown.empty())
      read_.notes.push_back("keys that transformers' class does not use are ignored: " + unknown);
  }

  ConfigKeys keys_;
  const std::string file_;
  config::Report& report_;
  HfConfig read_;
};

// --- write ---

void put_gpt2(const ModelConfig& m, Json& json) {
  json.set("n_layer", m.layers).set("n_embd", m.hidden).set("n_head", m.heads);
  json.set("n_inner", m.ffn).set("n_positions", m.max_positions).set("n_ctx", m.max_positions);
  json.set("layer_norm_epsilon", m.norm_eps).set("activation_function", "gelu_new");
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) json.set(key, 0.0);
}

void put_rotary(const ModelConfig& m, std::string_view type, Json& json) {
  json.set("num_hidden_layers", m.layers).set("hidden_size", m.hidden);
  json.set("num_attention_heads", m.heads).set("num_key_value_heads", m.kv_heads);
  json.set("head_dim", m.head_dim).set("intermediate_size", m.ffn);
  json.set("max_position_embeddings", m.max_positions);
  json.set("rms_norm_eps", m.norm_eps).set("hidden_act", "silu").set("attention_dropout", 0.0);
  json.set("rope_theta", m.rope_theta).set("rope_scaling", nullptr);
  if (const model::RopeScaling& r = m.rope_scaling; r.factor != 1.0)
    json.set("rope_scaling",
             Json::object({{"rope_type", "llama3"},
                           {"factor", r.factor},
                           {"low_freq_factor", r.low_freq},
                           {"high_freq_factor", r.high_freq},
                           {"original_max_position_embeddings", r.original_positions}}));
  if (type == "llama") json.set("attention_bias", false).set("mlp_bias", false);
  if (type == "qwen3") json.set("attention_bias", false);
  if (type == "mistral")
    json.set("sliding_window", m.window >= m.max_positions ? Json() : Json(m.window));
  if (type.starts_with("qwen"))
    json.set("use_sliding_window", false).set("max_window_layers", m.layers);
}

Json sorted(const Json& json) {
  Json::Object members = json.members();
  std::ranges::sort(members, {}, &Json::Member::key);
  return Json::object(std::move(members));
}

std::string_view torch_name(DType dtype) {
  if (dtype == DType::kBF16) return "bfloat16";
  if (dtype == DType::kF16) return "float16";
  return dtype == DType::kF64 ? "float64" : "float32";
}

// What `read` lacks of `model`.
std::string lost_traits(const ModelConfig& model, const ModelConfig& read) {
  const model::ModelFacts kept = model::model_facts(read);
  std::string lost;
  for (const auto& fact : model::model_facts(model))
    if (std::ranges::find(kept, fact) == kept.end())
      lost += (lost.empty() ? "" : ", ") + fact.first + " = " + fact.second;
  return lost;
}

Error no_form(const ModelConfig& model, const std::string& why) {
  return {Code::kNoHfForm, "model `" + model.name + "` " + why,
          "gpt2, llama, mistral, qwen2 and qwen3 can be written"};
}

}  // namespace

std::optional<HfConfig> read_config(const Json& json, const std::string& file,
                                    config::Report& report) {
  const int before = report.num_errors();
  const auto refuse = [&](const std::string& why) {
    report.add(Error{Code::kBadHfConfig, file + ": " + why,
                     "it may be gpt2, llama, mistral, qwen2 or qwen3"});
    return std::nullopt;
  };
  if (!json.is_object()) return refuse("it is no JSON object, so it has no model_type");
  const Json* const type = json.find("model_type");
  if (type == nullptr || !type->is_text()) return refuse("model_type is missing");
  if (std::ranges::find(kTypes, type->as_text(), &Type::model_type) == kTypes.end())
    return refuse("model_type is " + type->dump() + ", which cannot be trained here");
  Reader reader(json, file, report);
  reader.read(type->as_text());
  HfConfig read = reader.take();
  if (report.num_errors() == before)
    for (const Error& error : model::problems(read.model))
      report.add(Error{Code::kBadHfConfig, file + ": " + error.message, error.help});
  if (report.num_errors() > before) return std::nullopt;
  return read;
}

Result<Json> config_json(const ModelConfig& model, DType stored) {
  const std::string_view type = model::hf_model_type(model);
  const auto row = std::ranges::find(kTypes, type, &Type::model_type);
  if (row == kTypes.end()) return no_form(model, "is a " + std::string(type) + " to transformers");
  if (type == "llama" && model.hidden % model.heads != 0)
    return no_form(model, join_parts("has ", model.heads, " heads and hidden ", model.hidden,
                                     ", which transformers' llama wants divisible"));
  Json json = Json::object({{"architectures", Json::array({row->architecture})},
                            {"model_type", type},
                            {"vocab_size", model.vocab},
                            {"tie_word_embeddings", model.tied},
                            {"initializer_range", model.init_std},
                            {"torch_dtype", torch_name(stored)},
                            {"use_cache", true},
                            {"bos_token_id", nullptr},
                            {"eos_token_id", nullptr}});
  if (type == "gpt2")
    put_gpt2(model, json);
  else
    put_rotary(model, type, json);
  json = sorted(json);
  config::Report report;
  std::optional<HfConfig> again = read_config(json, "config.json", report);
  if (!again) return no_form(model, "cannot be written: " + report.first_error().message);
  again->model.name = model.name;
  if (again->model == model) return json;
  ModelConfig windowed = again->model;
  windowed.window = model.window;  // every window that no sequence fills is the same
  if (windowed == model && model.window >= model.max_positions && type == "mistral") return json;
  return no_form(model, "has traits that a " + std::string(type) +
                            " of transformers has not: " + lost_traits(model, again->model));
}

}  // namespace lockstep::hf

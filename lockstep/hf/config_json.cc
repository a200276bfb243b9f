#include "lockstep/hf/config_json.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/base/text.h"
#include "lockstep/config/suggest.h"
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
  Family family = Family::kLlama;
  // What transformers takes when the key is absent:
  std::int64_t kv_heads = 0;  // 0: as many as heads
  double norm_eps = 1e-6;
  double rope_theta = 1e4;
  bool trains = true;  // false: priced alone
};
constexpr std::array kTypes = {
    Type{"gpt2", "GPT2LMHeadModel", Family::kGpt2},
    Type{"llama", "LlamaForCausalLM"},
    Type{"mistral", "MistralForCausalLM", Family::kLlama, 8},
    Type{"qwen2", "Qwen2ForCausalLM", Family::kLlama, 32},
    Type{"qwen3", "Qwen3ForCausalLM", Family::kLlama, 32},
    Type{"olmo", "OlmoForCausalLM", Family::kLlama, 0, 1e-5, 1e4, false},
    Type{"olmo2", "Olmo2ForCausalLM", Family::kLlama, 0, 1e-5},
    Type{"gemma2", "Gemma2ForCausalLM", Family::kGemma2, 4},
    Type{"mixtral", "MixtralForCausalLM", Family::kMoe, 8, 1e-5, 1e6},
    Type{"qwen2_moe", "Qwen2MoeForCausalLM", Family::kMoe, 16},
    Type{"qwen3_moe", "Qwen3MoeForCausalLM", Family::kMoe, 4},
    Type{"olmoe", "OlmoeForCausalLM", Family::kMoe, 0, 1e-5},
    Type{"dots1", "Dots1ForCausalLM", Family::kMoe, 32},
    Type{"deepseek_v2", "DeepseekV2ForCausalLM", Family::kDeepSeek, 0, 1e-6, 1e4, false},
    Type{"deepseek_v3", "DeepseekV3ForCausalLM", Family::kDeepSeek, 0, 1e-6, 1e4, false}};

std::string types_for(Use use, const char* last_word) {
  std::vector<std::string> names;
  for (const Type& type : kTypes)
    if (type.trains || use == Use::kPrice) names.emplace_back(type.model_type);
  return config::listed(names, last_word);
}

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
// And those of routers, which no price depends on.
constexpr std::string_view kSilentInPrices =
    "auto_map seq_aux aux_loss_alpha "
    "ep_size rope_interleave cache_implementation head_dim intermediate_size";

// --- read ---

class Reader {
 public:
  Reader(const Json& json, const std::string& file, config::Report& report, Use use)
      : keys_(json, file + ": ", report), file_(file), report_(report), use_(use) {}

  HfConfig read(const Type& type) {
    if (keys_.find("quantization_config") != nullptr)
      differs(keys_, "quantization_config", "but quantized weights cannot be trained",
              "start from the unquantized model");
    read_.model = model::usual(type.family);
    if (type.family == Family::kGpt2)
      gpt2();
    else
      rotary(type);
    note_ignored();
    return std::move(read_);
  }

 private:
  void gpt2() {
    ModelConfig& m = read_.model;
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
    only("scale_attn_weights", true, "but scores are always divided by the root of head_dim");
    only("scale_attn_by_inverse_layer_idx", false, "a scale that is not written");
    if (keys_.flag("add_cross_attention", false))
      keys_.refuse("add_cross_attention", "but there is no encoder to attend to");
    dropout({"resid_pdrop", "embd_pdrop", "attn_pdrop"});
  }

  // What a model need not compute to be priced: a mistake where it trains, else a note.
  void differs(ConfigKeys& keys, const std::string& key, const std::string& why,
               const std::string& help = "") {
    if (use_ == Use::kTrain) return keys.refuse(key, why, help);
    const std::string value = keys.find(key)->dump();
    read_.notes.push_back(
        join_parts(key, value.size() < 40 ? " " + value : "", " is left out of the price"));
  }
  void only(const std::string& key, bool wanted, const std::string& why) {
    if (keys_.flag(key, wanted) != wanted) differs(keys_, key, why);
  }

  void rotary(const Type& kind) {
    const std::string_view type = kind.model_type;
    const bool per_head = type.starts_with("qwen3") || type == "dots1";
    ModelConfig& m = read_.model;
    m.layers = keys_.size("num_hidden_layers");
    m.hidden = keys_.size("hidden_size");
    m.heads = keys_.size("num_attention_heads");
    m.kv_heads = keys_.size("num_key_value_heads", kind.kv_heads == 0 ? m.heads : kind.kv_heads);
    if (m.family == Family::kDeepSeek)
      latent();
    else
      m.head_dim = keys_.size("head_dim", type == "qwen3"    ? 128
                                          : type == "gemma2" ? 256
                                          : m.heads > 0      ? m.hidden / m.heads
                                                             : 0);
    if (m.family == Family::kMoe || m.family == Family::kDeepSeek) experts(type);
    if (m.moe.experts == 0 || m.moe.dense_layers > 0) m.ffn = keys_.size("intermediate_size");
    m.vocab = keys_.size("vocab_size");
    m.max_positions = keys_.size("max_position_embeddings");
    m.tied = keys_.flag("tie_word_embeddings", m.tied);
    if (type == "olmo") m.norm = model::NormKind::kPlain;
    m.norm_eps = keys_.real("rms_norm_eps", kind.norm_eps);
    m.init_std = keys_.real("initializer_range", 0.02);
    m.qkv_bias = type.starts_with("qwen2");
    if (per_head) m.qk_norm = model::QkNorm::kPerHead;
    if (type == "olmo2" || type == "olmoe") m.qk_norm = model::QkNorm::kWide;
    if (type == "olmo2") m.norm_place = model::NormPlace::kAfter;
    if (type == "gemma2")
      gemma2();
    else
      activation("hidden_act", "silu", "swish");
    if (!type.starts_with("qwen2") && type != "mistral" && type != "mixtral")
      only("attention_bias", false,
           "but a bias on the output of attention is not written; qwen2's, on query, key and "
           "value alone, is");
    if (type == "llama") only("mlp_bias", false, "but MLPs here have no biases");
    if ((type == "olmo" || type == "olmoe") && keys_.find("clip_qkv") != nullptr)
      differs(keys_, "clip_qkv", "but queries, keys and values are not clipped here");
    windows(type);
    rope(kind.rope_theta);
    dropout({"attention_dropout"});
  }

  void gemma2() {
    ModelConfig& m = read_.model;
    m.window = keys_.size("sliding_window", 4096);
    const auto cap = [&](const char* key, double usual) {
      return keys_.is_null(key) ? keys_.real(key, 0.0) : keys_.real(key, usual);
    };
    m.attention_softcap = cap("attn_logit_softcapping", 50);
    m.logit_softcap = cap("final_logit_softcapping", 30);
    m.query_scale_dim = keys_.real("query_pre_attn_scalar", 256);
    keys_.find("hidden_act");  // transformers reads the other
    activation("hidden_activation", "gelu_pytorch_tanh", "gelu_new");
    only("use_bidirectional_attention", false, "but no token sees those behind it here");
  }

  void experts(std::string_view type) {
    model::Moe& moe = read_.model.moe;
    const bool mixtral = type == "mixtral", deepseek = type.starts_with("deepseek");
    const bool like_deepseek = deepseek || type == "dots1";
    // transformers 5 writes mixtral's key for qwen3_moe, too.
    const bool local = mixtral || keys_.find("num_local_experts") != nullptr;
    moe.experts = keys_.size(local           ? "num_local_experts"
                             : like_deepseek ? "n_routed_experts"
                                             : "num_experts");
    moe.top_k = keys_.size("num_experts_per_tok");
    moe.expert_ffn =
        keys_.size(mixtral || type == "olmoe" ? "intermediate_size" : "moe_intermediate_size");
    if (!mixtral) moe.norm_topk_prob = keys_.flag("norm_topk_prob", type == "deepseek_v3");
    if (type == "qwen2_moe") {
      moe.shared_ffn = keys_.size("shared_expert_intermediate_size");
      moe.shared_gate = true;
    }
    if (like_deepseek) deepseek_experts(type);
    keys_.find("intermediate_size");     // of layers without experts
    keys_.find("router_aux_loss_coef");  // of transformers' loss, where that is asked for
    only("output_router_logits", false, "but there is no auxiliary loss here yet");
    if (keys_.real("router_jitter_noise", 0.0) != 0.0)
      differs(keys_, "router_jitter_noise", "but routers see no noise here");
    for (const char* key : {"decoder_sparse_step", "moe_layer_freq"})
      if (keys_.size(key, 1) != 1) keys_.refuse(key, "but every layer must have experts");
    const Json* const plain = keys_.find("mlp_only_layers");
    if (plain != nullptr && (!plain->is_array() || !plain->items().empty()))
      keys_.refuse("mlp_only_layers", "but every layer must have experts");
  }

  // As transformers routes, whatever a file says of scores; deepseek_v2 is priced alone.
  void deepseek_experts(std::string_view type) {
    model::Moe& moe = read_.model.moe;
    moe.shared_ffn = keys_.size("n_shared_experts", 0) * moe.expert_ffn;
    moe.dense_layers = keys_.size("first_k_dense_replace", 0);
    const bool v2 = type == "deepseek_v2", v3 = type == "deepseek_v3";
    moe.router_bias = !v2;
    if (!v2) moe.score = model::RouterScore::kSigmoid;
    keys_.find("scoring_func");
    const Json* const method = keys_.find("topk_method");
    const std::int64_t groups = keys_.size("n_group", v3 ? 8 : 1);
    const std::int64_t top_groups = keys_.size("topk_group", v3 ? 4 : 1);
    const bool any = v2 && (method == nullptr || *method == Json("greedy"));
    if (!any) moe.groups = groups, moe.top_groups = top_groups;
    moe.routed_scale = keys_.real("routed_scaling_factor", v3 ? 2.5 : 1.0);
  }

  void latent() {
    model::Mla& mla = read_.model.mla;
    mla = {.q_rank = keys_.size("q_lora_rank", 0),
           .kv_rank = keys_.size("kv_lora_rank"),
           .nope_dim = keys_.size("qk_nope_head_dim"),
           .rope_dim = keys_.size("qk_rope_head_dim"),
           .v_dim = keys_.size("v_head_dim")};
    read_.model.head_dim = mla.nope_dim + mla.rope_dim;
    if (const std::int64_t more = keys_.size("num_nextn_predict_layers", 0); more > 0)
      read_.notes.push_back(join_parts("num_nextn_predict_layers ", more,
                                       " is left out, as in published sizes; a ",
                                       "model file with mtp_layers = ", more, " has it"));
  }

  void activation(const char* key, const std::string& usual, const std::string& also) {
    const std::string name = keys_.text(key, usual);
    if (name != usual && name != also)
      differs(keys_, key, "an activation that is not written", "it may be " + usual);
  }

  void windows(std::string_view type) {
    ModelConfig& m = read_.model;
    if (type == "mistral") {
      const std::int64_t usual = keys_.is_null("sliding_window") ? m.max_positions : 4096;
      m.window = keys_.size("sliding_window", usual);
    } else if (type == "mixtral") {
      m.window = keys_.size("sliding_window", 0);
    } else if (type.starts_with("qwen") || type == "dots1") {
      const std::int64_t global = keys_.size("max_window_layers", type == "dots1" ? 62 : 28);
      keys_.find("sliding_window");
      const bool slides = type == "dots1" ? !keys_.is_null("sliding_window")
                                          : keys_.flag("use_sliding_window", false);
      if (slides && global < m.layers)
        keys_.refuse(type == "dots1" ? "sliding_window" : "use_sliding_window",
                     "but windows on some layers only are not written");
    }
    const Json* const kinds = keys_.find("layer_types");
    if (kinds == nullptr) return;
    const char* const wanted = type == "gemma2"    ? "sliding_attention and full_attention in turns"
                               : type == "mistral" ? "sliding_attention"
                                                   : "full_attention";
    const auto is_usual = [&](const Json& kind) {
      const bool local = m.window > 0 && (&kind - kinds->items().data()) % m.window_every == 0;
      return kind.is_text() && kind.as_text() == (local ? "sliding_attention" : "full_attention");
    };
    if (!kinds->is_array() || !std::ranges::all_of(kinds->items(), is_usual))
      keys_.refuse("layer_types", std::string("but all layers must be ") + wanted);
  }

  void rope(double usual_theta) {
    if (keys_.real("partial_rotary_factor", 1.0) != 1.0)
      differs(keys_, "partial_rotary_factor", "but all of a head is turned here");
    read_.model.rope_theta = keys_.real("rope_theta", usual_theta);
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
      return differs(rope, key, "a rule that is not written", "llama3 and default are");
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
    std::vector<std::string_view> silent = split(kSilent, ' ');
    const bool trains = use_ == Use::kTrain;
    if (!trains) std::ranges::copy(split(kSilentInPrices, ' '), std::back_inserter(silent));
    std::string unknown;
    for (const std::string& key : keys_.unread())
      if (std::ranges::count(silent, key) == 0) unknown += (unknown.empty() ? "" : ", ") + key;
    if (!unknown.empty())
      read_.notes.push_back((trains ? "keys that transformers' class does not use are ignored: "
                                    : "keys that are not priced: ") +
                            unknown);
  }

  ConfigKeys keys_;
  const std::string file_;
  config::Report& report_;
  const Use use_;
  HfConfig read_;
};

// --- write ---

void put_gpt2(const ModelConfig& m, Json& json) {
  json.set("n_layer", m.layers).set("n_embd", m.hidden).set("n_head", m.heads);
  json.set("n_inner", m.ffn).set("n_positions", m.max_positions).set("n_ctx", m.max_positions);
  json.set("layer_norm_epsilon", m.norm_eps).set("activation_function", "gelu_new");
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) json.set(key, 0.0);
}

void put_gemma2(const ModelConfig& m, Json& json) {
  const auto cap = [](double value) { return value == 0.0 ? Json() : Json(value); };
  json.set("attn_logit_softcapping", cap(m.attention_softcap));
  json.set("final_logit_softcapping", cap(m.logit_softcap));
  // A whole number above 0 to transformers; what comes back otherwise is refused.
  const auto scale = static_cast<std::int64_t>(m.query_scale_dim);
  json.set("query_pre_attn_scalar", scale > 0 ? scale : m.head_dim);
  json.set("sliding_window", m.window).set("hidden_activation", "gelu_pytorch_tanh");
  json.set("attention_bias", false);
}

void put_experts(const ModelConfig& m, std::string_view type, Json& json) {
  const bool mixtral = type == "mixtral";
  const bool dots1 = type == "dots1";
  json.set(mixtral ? "num_local_experts"
           : dots1 ? "n_routed_experts"
                   : "num_experts",
           m.moe.experts);
  json.set("num_experts_per_tok", m.moe.top_k);
  if (!dots1) json.set("intermediate_size", m.moe.expert_ffn);
  if (mixtral) return void(json.set("sliding_window", m.window > 0 ? Json(m.window) : Json()));
  json.set("norm_topk_prob", m.moe.norm_topk_prob);
  if (type == "qwen2_moe")
    json.set("shared_expert_intermediate_size", m.moe.shared_ffn);
  else
    json.set("attention_bias", false);
  if (dots1)
    json.set("moe_intermediate_size", m.moe.expert_ffn)
        .set("n_shared_experts", m.moe.shared_ffn / m.moe.expert_ffn)
        .set("first_k_dense_replace", m.moe.dense_layers)
        .set("n_group", m.moe.groups)
        .set("topk_group", m.moe.top_groups)
        .set("routed_scaling_factor", m.moe.routed_scale)
        .set("sliding_window", nullptr);
  if (type.starts_with("qwen"))
    json.set("moe_intermediate_size", m.moe.expert_ffn)
        .set("decoder_sparse_step", 1)
        .set("mlp_only_layers", Json::array());
}

void put_rotary(const ModelConfig& m, std::string_view type, Json& json) {
  json.set("num_hidden_layers", m.layers).set("hidden_size", m.hidden);
  json.set("num_attention_heads", m.heads).set("num_key_value_heads", m.kv_heads);
  json.set("head_dim", m.head_dim).set("intermediate_size", m.ffn);
  json.set("max_position_embeddings", m.max_positions);
  json.set("rms_norm_eps", m.norm_eps).set("attention_dropout", 0.0);
  if (type == "gemma2")
    put_gemma2(m, json);
  else
    json.set("hidden_act", "silu");
  json.set("rope_theta", m.rope_theta).set("rope_scaling", nullptr);
  if (const model::RopeScaling& r = m.rope_scaling; r.factor != 1.0)
    json.set("rope_scaling",
             Json::object({{"rope_type", "llama3"},
                           {"factor", r.factor},
                           {"low_freq_factor", r.low_freq},
                           {"high_freq_factor", r.high_freq},
                           {"original_max_position_embeddings", r.original_positions}}));
  if (type == "llama") json.set("attention_bias", false).set("mlp_bias", false);
  if (type == "qwen3" || type == "olmo2") json.set("attention_bias", false);
  if (type == "mistral")
    json.set("sliding_window", m.window >= m.max_positions ? Json() : Json(m.window));
  if (m.moe.experts > 0) put_experts(m, type, json);
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
          types_for(Use::kTrain, "and") + " can be written"};
}

}  // namespace

std::optional<HfConfig> read_config(const Json& json, const std::string& file,
                                    config::Report& report, Use use) {
  const int before = report.num_errors();
  const auto refuse = [&](const std::string& why) {
    report.add(Error{Code::kBadHfConfig, file + ": " + why, "it may be " + types_for(use, "or")});
    return std::nullopt;
  };
  if (!json.is_object()) return refuse("it is no JSON object, so it has no model_type");
  const Json* const type = json.find("model_type");
  if (type == nullptr || !type->is_text()) return refuse("model_type is missing");
  const auto row = std::ranges::find(kTypes, type->as_text(), &Type::model_type);
  if (row == kTypes.end() || (use == Use::kTrain && !row->trains))
    return refuse(join_parts("model_type is ", type->dump(), ", which cannot be ",
                             use == Use::kTrain ? "trained" : "priced", " here"));
  HfConfig read = Reader(json, file, report, use).read(*row);
  if (report.num_errors() == before)
    for (const Error& error : model::problems(read.model))
      report.add(Error{Code::kBadHfConfig, file + ": " + error.message, error.help});
  if (report.num_errors() > before) return std::nullopt;
  return read;
}

std::optional<HfConfig> find_model(const std::string& name, config::Report& report) {
  const std::filesystem::path path(name);
  std::error_code none;
  const bool is_folder = std::filesystem::is_directory(path, none);
  std::optional<Json> json;
  const std::string file = is_folder ? (path / "config.json").string() : name;
  if (is_folder || name.ends_with(".json")) {
    const Result<MappedFile> text = MappedFile::open(file);
    if (!text.ok()) return report.add(text.error()), std::nullopt;
    Result<Json> parsed = Json::parse(text->text());
    if (parsed.ok()) json = *std::move(parsed);
  }
  // A model file of Lockstep in JSON has a family; who reads it says where it is broken.
  if (!json || (!is_folder && json->find("model_type") == nullptr)) {
    std::optional<ModelConfig> model = model::find_model(file, report);
    return model ? std::optional(HfConfig{*std::move(model), {}}) : std::nullopt;
  }
  std::optional<HfConfig> read = read_config(*json, file, report, Use::kPrice);
  const auto folder = std::filesystem::absolute(file).lexically_normal().parent_path();
  if (read)
    read->model.name = path.filename() == "config.json" || is_folder ? folder.filename().string()
                                                                     : path.stem().string();
  return read;
}

Result<Json> config_json(const ModelConfig& model, DType stored) {
  const std::string_view type = model::hf_model_type(model);
  const auto row = std::ranges::find(kTypes, type, &Type::model_type);
  if (row == kTypes.end() || !row->trains)
    return no_form(model, "is a " + std::string(type) + " to transformers");
  if ((type == "llama" || type == "gemma2") && model.hidden % model.heads != 0)
    return no_form(model, join_parts("has ", model.heads, " heads and hidden ", model.hidden,
                                     ", which transformers' ", type, " wants divisible"));
  if (type == "olmoe" && model.hidden != model.heads * model.head_dim)
    return no_form(
        model, join_parts("has ", model.heads, " heads of ", model.head_dim,
                          ", which transformers' olmoe wants as wide as hidden, ", model.hidden));
  if (type == "dots1" && model.moe.experts < 2 * model.moe.groups)
    return no_form(model, join_parts("has ", model.moe.groups, " groups of one expert",
                                     ", which transformers' dots1 takes the best two of"));
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

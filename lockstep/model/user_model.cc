#include "lockstep/model/user_model.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <variant>

#include "lockstep/base/json.h"
#include "lockstep/model/catalog.h"

namespace lockstep::model {
namespace {

using config::Field;
using config::FieldType;

// A key and the member of one ModelConfig that it fills.
struct Key {
  const char* path;
  std::variant<std::int64_t*, bool*, double*, Family*, NormKind*, NormPlace*, QkNorm*, RouterScore*>
      slot;
  const char* doc;
  double min;  // of numbers; inclusive for whole ones
  std::vector<std::string> known_as = {};
  bool above_min = false;  // the minimum itself is refused
};

constexpr const char* kInitStd = "init_std";
constexpr const char* kUnlessLike = "`like` is given";

// Sizes that no family derives from others.
constexpr std::array<std::string_view, 5> kOwnSizes = {"layers", "hidden", "heads", "vocab",
                                                       "max_positions"};

// The words of a choice.
const auto& names_of(Family) { return kFamilies; }
const auto& names_of(NormKind) { return kNormKinds; }
const auto& names_of(NormPlace) { return kNormPlaces; }
const auto& names_of(QkNorm) { return kQkNorms; }
const auto& names_of(RouterScore) { return kRouterScores; }

std::vector<Key> choice_keys(ModelConfig& c) {
  return {
      Key("family", &c.family, "The kind of model; without it llama, or that of `like`.", 0,
          {"model_type"}),
      Key("norm", &c.norm, "Kind of norm; the family decides when absent.", 0, {"normalization"}),
      Key("norm_place", &c.norm_place,
          "Where attention and MLP are normalized; the family decides when absent.", 0),
      Key("qk_norm", &c.qk_norm, "Norm of queries and keys.", 0, {"qk_layernorm"}),
  };
}

std::vector<Key> shape_keys(ModelConfig& c) {
  return {
      Key("layers", &c.layers, "Transformer blocks.", 1,
          {"num_layers", "num_hidden_layers", "n_layer"}),
      Key("hidden", &c.hidden, "Width of the residual stream.", 1,
          {"hidden_size", "n_embd", "d_model"}),
      Key("heads", &c.heads, "Query heads.", 1, {"num_attention_heads", "n_head"}),
      Key("kv_heads", &c.kv_heads, "Key-value heads; without it as many as heads.", 1,
          {"num_key_value_heads", "num_query_groups"}),
      Key("head_dim", &c.head_dim,
          "Width of a head; without it hidden / heads, or mla.nope_dim + mla.rope_dim.", 1,
          {"kv_channels"}),
      Key("ffn", &c.ffn, "Width of the plain MLP; without it 4 hidden in family gpt2.", 1,
          {"intermediate_size", "ffn_hidden_size", "n_inner"}),
      Key("vocab", &c.vocab, "Entries of the vocabulary.", 1, {"vocab_size", "padded_vocab_size"}),
      Key("max_positions", &c.max_positions, "Longest sequence.", 1,
          {"max_position_embeddings", "n_positions"}),
      Key("tied", &c.tied, "The head's projection is the embedding's weight.", 0,
          {"tie_word_embeddings"}),
  };
}

std::vector<Key> trait_keys(ModelConfig& c) {
  return {
      Key("norm_eps", &c.norm_eps, "Added to the variance in norms.", 0,
          {"rms_norm_eps", "layer_norm_epsilon"}, true),
      Key("qkv_bias", &c.qkv_bias, "Biases on the query, key and value projections.", 0,
          {"attention_bias", "add_qkv_bias"}),
      Key("linear_bias", &c.linear_bias, "Biases on the other linears; family gpt2 only.", 0,
          {"add_bias_linear"}),
      Key("rope_theta", &c.rope_theta, "Base of the rotary frequencies.", 1, {"rotary_base"}),
      Key("window", &c.window,
          "Keys a query of a local layer looks back to, itself included; 0 for all.", 0,
          {"sliding_window"}),
      Key("window_every", &c.window_every, "1: every layer is local; 2: every second one.", 1),
      Key("attention_softcap", &c.attention_softcap,
          "Scores become c tanh(scores / c); 0 for none.", 0, {"attn_logit_softcapping"}),
      Key("logit_softcap", &c.logit_softcap, "The same for logits.", 0,
          {"final_logit_softcapping"}),
      Key("query_scale_dim", &c.query_scale_dim,
          "Scores are divided by its root; 0 for that of head_dim.", 0, {"query_pre_attn_scalar"}),
      Key("scaled_embedding", &c.scaled_embedding, "Multiply embeddings by the root of hidden.", 0),
      Key("mtp_layers", &c.mtp_layers, "Multi-token-prediction blocks after the last one.", 0,
          {"num_nextn_predict_layers", "mtp_num_layers"}),
      Key(kInitStd, &c.init_std, "Standard deviation of initial weights.", 0,
          {"initializer_range", "init_method_std"}, true),
      Key("dropout", &c.dropout, "Share of activations that are zeroed; only 0 is accepted.", 0,
          {"resid_pdrop", "attn_pdrop", "embd_pdrop", "attention_dropout", "hidden_dropout"}),
  };
}

// Named as in Hugging Face's config.json, so that its `rope_scaling` can be taken over as it is.
std::vector<Key> rope_scaling_keys(ModelConfig& c) {
  RopeScaling& r = c.rope_scaling;
  return {
      Key("rope_scaling.factor", &r.factor,
          "How much low rotary frequencies are stretched; 1 for not at all.", 1),
      Key("rope_scaling.low_freq_factor", &r.low_freq,
          "Original positions over the shortest wavelength that is stretched fully.", 0, {}, true),
      Key("rope_scaling.high_freq_factor", &r.high_freq,
          "Original positions over the longest wavelength that is not stretched.", 0, {}, true),
      Key("rope_scaling.original_max_position_embeddings", &r.original_positions,
          "Longest sequence before stretching.", 1),
  };
}

std::vector<Key> expert_keys(ModelConfig& c) {
  return {
      Key("moe.experts", &c.moe.experts,
          "Routed experts in a block; families moe and deepseek have them.", 0,
          {"num_experts", "num_local_experts", "n_routed_experts"}),
      Key("moe.top_k", &c.moe.top_k, "Experts a token meets.", 0,
          {"num_experts_per_tok", "moe_router_topk"}),
      Key("moe.expert_ffn", &c.moe.expert_ffn, "Width of one expert.", 0,
          {"moe_intermediate_size", "moe_ffn_hidden_size"}),
      Key("moe.shared_ffn", &c.moe.shared_ffn, "Total width of the experts that every token meets.",
          0, {"shared_expert_intermediate_size"}),
      Key("moe.shared_gate", &c.moe.shared_gate, "A sigmoid gate scales the shared experts.", 0),
      Key("moe.dense_layers", &c.moe.dense_layers, "Leading blocks with a plain MLP.", 0,
          {"first_k_dense_replace"}),
      Key("moe.router_bias", &c.moe.router_bias,
          "Balance experts by a selection bias without a gradient.", 0,
          {"moe_router_enable_expert_bias"}),
      Key("moe.norm_topk_prob", &c.moe.norm_topk_prob,
          "The weights of a token's experts are made to add up to 1.", 0),
      Key("moe.score", &c.moe.score, "What a router makes of its logits.", 0,
          {"scoring_func", "moe_router_score_function"}),
      Key("moe.groups", &c.moe.groups, "Groups of experts; a token meets those of a few.", 1,
          {"n_group", "moe_router_num_groups"}),
      Key("moe.top_groups", &c.moe.top_groups, "Groups whose experts a token may meet.", 1,
          {"topk_group", "moe_router_group_topk"}),
      Key("moe.routed_scale", &c.moe.routed_scale,
          "What the weights of a token's experts are multiplied by.", 0,
          {"routed_scaling_factor", "moe_router_topk_scaling_factor"}, true),
      Key("mla.q_rank", &c.mla.q_rank, "Rank of the query projection; 0 for a direct one.", 0,
          {"q_lora_rank"}),
      Key("mla.kv_rank", &c.mla.kv_rank, "Rank of the key-value projection.", 0, {"kv_lora_rank"}),
      Key("mla.nope_dim", &c.mla.nope_dim, "Part of a head without rotary positions.", 0,
          {"qk_nope_head_dim", "qk_head_dim"}),
      Key("mla.rope_dim", &c.mla.rope_dim, "Part of a head with rotary positions.", 0,
          {"qk_rope_head_dim", "qk_pos_emb_head_dim"}),
      Key("mla.v_dim", &c.mla.v_dim, "Width of a value head.", 0, {"v_head_dim"}),
  };
}

std::vector<Key> all_keys(ModelConfig& config) {
  std::vector<Key> keys = choice_keys(config);
  for (auto* more : {shape_keys, trait_keys, rope_scaling_keys, expert_keys})
    for (Key& key : more(config)) keys.push_back(std::move(key));
  return keys;
}

Field field_of(const Key& key) {
  Field field{.path = key.path, .doc = key.doc, .known_as = key.known_as};
  const auto number = [&](FieldType type) {
    field.type = type;
    field.min = key.min;
    field.above_min = key.above_min;
  };
  const auto describe_value = [&]<class T>(const T*) {
    if constexpr (std::is_enum_v<T>) {
      field.type = FieldType::kChoice;
      field.choices = names_of(T()).names();
    } else if constexpr (std::is_same_v<T, bool>) {
      field.type = FieldType::kBool;
    } else if constexpr (std::is_same_v<T, double>) {
      number(FieldType::kReal);
    } else {
      number(FieldType::kInt);
      field.max = 2147483648.0;
    }
  };
  std::visit(describe_value, key.slot);
  if (std::ranges::find(kOwnSizes, field.path) != kOwnSizes.end())
    field.required_unless = kUnlessLike;
  if (field.path == "ffn")
    field.required_unless =
        std::string(kUnlessLike) + ", the family is gpt2 or every layer has experts";
  return field;
}

// Leaves the member alone when the key is absent or was refused.
void fill(const config::Settings& settings, Key& key) {
  if (!settings.is_set(key.path)) return;
  const auto take = [&]<class T>(T* slot) {
    if constexpr (std::is_enum_v<T>)
      *slot = names_of(T()).find(settings.text(key.path).value_or("")).value_or(*slot);
    else if constexpr (std::is_same_v<T, bool>)
      *slot = settings.boolean(key.path).value_or(*slot);
    else if constexpr (std::is_same_v<T, double>)
      *slot = settings.real(key.path).value_or(*slot);
    else
      *slot = settings.integer(key.path).value_or(*slot);
  };
  std::visit(take, key.slot);
}

Field rope_type_field() {
  const std::string other = "only llama3's rule is implemented";
  return {.path = "rope_scaling.rope_type",
          .type = FieldType::kChoice,
          .doc = "The rule by which rotary frequencies are stretched; llama3 when absent.",
          .choices = {"llama3"},
          .refused = {{"default", "it means no scaling; leave the table out"},
                      {"linear", other},
                      {"dynamic", other},
                      {"yarn", other},
                      {"longrope", other},
                      {"su", other},
                      {"mrope", other}}};
}

std::vector<Field> all_fields() {
  std::vector<Field> fields = {
      {.path = "name", .type = FieldType::kString, .doc = "What to call the model."},
      {.path = "like",
       .type = FieldType::kString,
       .doc = "A model of the catalogue whose values hold where this file has none."},
  };
  ModelConfig unused;
  for (const Key& key : all_keys(unused)) {
    if (std::string_view(key.path) == "rope_scaling.factor") fields.push_back(rope_type_field());
    fields.push_back(field_of(key));
  }
  return fields;
}

// The keys that a model of this kind must have when nothing stands for those left out.
bool is_needed(std::string_view path, Family family, bool has_dense_layers) {
  const bool experts = family == Family::kMoe || family == Family::kDeepSeek;
  const auto is_one_of = [&](std::initializer_list<std::string_view> paths) {
    return std::ranges::find(paths, path) != paths.end();
  };
  if (std::ranges::find(kOwnSizes, path) != kOwnSizes.end()) return true;
  if (path == "ffn") return family != Family::kGpt2 && (!experts || has_dense_layers);
  if (path == "window") return family == Family::kGemma2;
  if (is_one_of({"moe.experts", "moe.top_k", "moe.expert_ffn"})) return experts;
  return family == Family::kDeepSeek &&
         is_one_of({"mla.kv_rank", "mla.nope_dim", "mla.rope_dim", "mla.v_dim"});
}

// Single keys, and keys that are missing.
void check_keys(const config::Value& table, config::Report& report, const std::string& where) {
  const config::Settings settings(table, model_fields());
  const bool family_is_known = !settings.is_set("family") || settings.text("family");
  std::vector<Field> fields = all_fields();
  if (!settings.is_set("like") && family_is_known) {
    const Family family =
        kFamilies.find(settings.text("family").value_or("")).value_or(Family::kLlama);
    const bool has_dense_layers = settings.integer("moe.dense_layers").value_or(0) > 0;
    for (Field& field : fields) field.required = is_needed(field.path, family, has_dense_layers);
  }
  config::check(table, config::FieldTable("model", std::move(fields)), report, where);
}

// Derived sizes follow what was written, also over those of `like`.
void derive(const config::Settings& settings, bool has_base, ModelConfig& c) {
  const auto moved = [&](std::initializer_list<const char*> paths) {
    for (const char* path : paths)
      if (settings.is_set(path)) return true;
    return !has_base;
  };
  const bool latent = c.mla.kv_rank > 0;
  const bool has_as_many = latent || c.family == Family::kGpt2;
  if (!settings.is_set("kv_heads") && (!has_base || (has_as_many && moved({"heads"}))))
    c.kv_heads = c.heads;
  if (!settings.is_set("head_dim")) {
    if (latent && moved({"mla.nope_dim", "mla.rope_dim"}))
      c.head_dim = c.mla.nope_dim + c.mla.rope_dim;
    else if (!latent && moved({"hidden", "heads"}) && c.heads > 0)
      c.head_dim = c.hidden / c.heads;
  }
  if (!settings.is_set("ffn") && c.family == Family::kGpt2 && moved({"hidden"}))
    c.ffn = 4 * c.hidden;
  // A factor of 1 takes the scaling of `like` away.
  if (c.rope_scaling.factor == 1.0 &&
      !settings.is_set("rope_scaling.original_max_position_embeddings"))
    c.rope_scaling = {};
}

// Those of the model, and a table that says how to stretch but not by how much.
std::vector<Problem> all_problems(const config::Settings& settings, const ModelConfig& model) {
  std::vector<Problem> problems = problems_by_field(model);
  if (!problems.empty() || model.rope_scaling.factor != 1.0) return problems;
  for (const char* path :
       {"rope_scaling.rope_type", "rope_scaling.low_freq_factor", "rope_scaling.high_freq_factor"})
    if (settings.is_set(path))
      problems.push_back({{Code::kBadModel, strf("%s is given, but no factor above 1", path),
                           "add rope_scaling.factor, or leave the table out"},
                          {path}});
  return problems;
}

// Points at the keys that are written in the file; the others came from a default or from `like`.
config::Diagnostic placed(const Problem& problem, const config::Settings& settings) {
  config::Diagnostic diagnostic = config::to_diagnostic(problem.error);
  for (const std::string& field : problem.fields) {
    if (!settings.is_set(field)) continue;
    if (!diagnostic.primary.span.known())
      diagnostic.primary.span = settings.span(field);
    else
      diagnostic.secondary.emplace_back(settings.span(field), "");
  }
  return diagnostic;
}

// Of a key's value; reals with the fewest digits that read back to the same bits.
std::string value_text(const Key& key) {
  const auto text = []<class T>(const T* slot) -> std::string {
    if constexpr (std::is_enum_v<T>)
      return std::string(to_text(*slot));
    else if constexpr (std::is_same_v<T, std::int64_t>)
      return std::to_string(*slot);
    else
      return Json(*slot).dump();
  };
  return std::visit(text, key.slot);
}

// Lines of TOML. Texts are quoted as JSON quotes them, which TOML understands.
std::string toml_of(const ModelFacts& facts) {
  std::string text;
  for (const auto& [key, value] : facts) {
    const Field* const field = model_fields().find(key);
    const bool quoted =
        field == nullptr || field->type == FieldType::kString || field->type == FieldType::kChoice;
    text += key + " = " + (quoted ? Json(value).dump() : value) + "\n";
  }
  return text;
}

}  // namespace

const config::FieldTable& model_fields() {
  static const config::FieldTable table("model", all_fields());
  return table;
}

std::optional<ModelConfig> model_from(const config::Value& table, config::Report& report,
                                      const std::string& where) {
  const int before = report.num_errors();
  check_keys(table, report, where);
  const config::Settings settings(table, model_fields());

  ModelConfig model =
      usual(kFamilies.find(settings.text("family").value_or("")).value_or(Family::kLlama));
  const std::optional<std::string> like = settings.text("like");
  if (like) {
    const Result<CatalogRow> row = find(*like);
    if (row.ok()) {
      model = row->config;
      model.name = row->config.name + "-variant";
    } else {
      report.add(row.error(), settings.span("like"));
    }
  }
  for (Key& key : all_keys(model)) fill(settings, key);
  model.name = settings.text("name").value_or(model.name);
  derive(settings, like.has_value(), model);

  // Contradictions between values that were themselves refused would only repeat it.
  if (report.num_errors() == before)
    for (const Problem& problem : all_problems(settings, model))
      report.add(placed(problem, settings));
  if (report.num_errors() > before) return std::nullopt;
  return model;
}

std::optional<ModelConfig> find_model(std::string_view name, config::Report& report) {
  if (!config::looks_like_a_file(name)) {
    Result<CatalogRow> row = find(name);
    if (row.ok()) return std::move(row->config);
    if (!config::is_there(name)) return report.add(row.error()), std::nullopt;
  }
  const std::string path(name);
  const std::optional<config::Document> document = config::load_document(path, report);
  if (!document) return std::nullopt;
  std::optional<ModelConfig> model = model_from(document->root(), report);
  if (model && document->find("name") == nullptr)
    model->name = std::filesystem::path(path).stem().string();
  return model;
}

ModelFacts model_facts(const ModelConfig& model) {
  ModelConfig own = model;
  ModelFacts facts;
  for (const Key& key : all_keys(own)) {
    const std::string_view path = key.path;
    const bool is_idle =
        (path.starts_with("rope_scaling.") && own.rope_scaling.factor == 1.0) ||
        (path == "rope_theta" && positions(own) != Positions::kRotary) ||
        (path == "ffn" && own.ffn == 0) || (path.starts_with("moe.") && own.moe == Moe{}) ||
        (path.starts_with("mla.") && own.mla == Mla{}) || path == kInitStd || path == "dropout" ||
        (path == "moe.score" && own.moe.score == RouterScore::kSoftmax) ||
        ((path == "moe.groups" || path == "moe.top_groups") && own.moe.groups == 1) ||
        (path == "moe.routed_scale" && own.moe.routed_scale == 1.0);
    if (!is_idle) facts.emplace_back(path, value_text(key));
  }
  return facts;
}

Result<ModelConfig> model_of(const ModelFacts& facts) {
  config::Report report;
  const auto document =
      config::parse_document(toml_of(facts), "model", config::Format::kToml, report);
  std::optional<ModelConfig> model;
  if (document) model = model_from(document->root(), report);
  if (!model) return report.first_error();
  return *std::move(model);
}

std::string model_text(const ModelConfig& model) {
  ModelFacts facts = model_facts(model);
  if (!model.name.empty()) facts.insert(facts.begin(), {"name", model.name});
  facts.emplace_back(kInitStd, Json(model.init_std).dump());
  return toml_of(facts);
}

}  // namespace lockstep::model

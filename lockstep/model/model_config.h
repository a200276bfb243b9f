// The numbers that make a model: what a config.json holds, in one struct for every family. Plain
// data; any thread may read it. Sizes count elements; a zero means "this model has none".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"

namespace lockstep::model {

enum class Family : std::uint8_t {
  kGpt2,      // LayerNorm, biases, learned positions, two-matrix GELU MLP
  kLlama,     // RMSNorm, rotary positions, SwiGLU: llama, mistral, qwen2/3, yi, olmo
  kMoe,       // llama attention, experts in place of the MLP: mixtral, qwen-moe
  kDeepSeek,  // latent attention (MLA), shared and routed experts
  kGemma2,    // norms before and after each half, soft caps, every second layer local
};
inline constexpr EnumNames<Family, 5> kFamilies = {{"gpt2", "llama", "moe", "deepseek", "gemma2"}};

enum class NormKind : std::uint8_t {
  kLayerNorm,       // gain and bias
  kRmsNorm,         // gain
  kRmsNormPlusOne,  // stores gain - 1, so its initial value is zero (gemma)
  kPlain,           // LayerNorm without parameters (OLMo 1)
};
inline constexpr EnumNames<NormKind, 4> kNormKinds = {
    {"layernorm", "rmsnorm", "rmsnorm+1", "plain"}};

enum class NormPlace : std::uint8_t {
  kBefore,  // normalizes the input of attention and of the MLP
  kAfter,   // normalizes their output, before the residual sum (OLMo 2)
  kBoth,    // both (gemma 2)
};
inline constexpr EnumNames<NormPlace, 3> kNormPlaces = {{"before", "after", "both"}};

enum class QkNorm : std::uint8_t {
  kNone,
  kPerHead,  // one gain of head_dim shared by all heads (qwen3)
  kWide,     // one gain over all heads together (OLMo 2)
};
inline constexpr EnumNames<QkNorm, 3> kQkNorms = {{"none", "per-head", "wide"}};

// What lies between the matrices of an MLP.
enum class Activation : std::uint8_t {
  kSwiGlu,  // silu(gate) x up (Shazeer, arXiv 2002.05202)
  kGeGlu,   // gelu(gate) x up, of the same
  kGelu,    // of up alone, in the form with a tanh (Hendrycks and Gimpel, arXiv 1606.08415)
};

// How a token's place in its sequence enters.
enum class Positions : std::uint8_t {
  kRotary,   // queries and keys are turned
  kLearned,  // a table is added to the embedding
};

// What a router makes of its logits.
enum class RouterScore : std::uint8_t {
  kSoftmax,
  kSigmoid,  // of each expert on its own (DeepSeek-V3, arXiv 2412.19437, section 2.1.2)
};
inline constexpr EnumNames<RouterScore, 2> kRouterScores = {{"softmax", "sigmoid"}};

struct Moe {
  std::int64_t experts = 0;       // routed experts per MoE block; 0 for a dense model
  std::int64_t top_k = 0;         // experts a token meets
  std::int64_t expert_ffn = 0;    // width of one expert
  std::int64_t shared_ffn = 0;    // total width of the experts every token meets
  bool shared_gate = false;       // a sigmoid gate scales the shared experts (qwen2-moe)
  std::int64_t dense_layers = 0;  // leading blocks that keep a plain MLP of width ffn
  bool router_bias = false;       // per-expert selection bias, updated without a gradient
  bool norm_topk_prob = true;     // the weights of a token's experts are made to add up to 1
  RouterScore score = RouterScore::kSoftmax;
  std::int64_t groups = 1;      // of as many experts each; a token meets those of
  std::int64_t top_groups = 1;  // so many (node-limited routing, the same section)
  double routed_scale = 1.0;    // the weights are multiplied by it
  bool operator==(const Moe&) const = default;
};

// Multi-head latent attention, DeepSeek-V2 (arXiv 2405.04434) section 2.1.
struct Mla {
  std::int64_t q_rank = 0;    // 0: queries are projected directly
  std::int64_t kv_rank = 0;   // 0: the model does not use MLA
  std::int64_t nope_dim = 0;  // per head, without rotary positions
  std::int64_t rope_dim =
      0;                   // per head, with rotary positions; the key part is shared by all heads
  std::int64_t v_dim = 0;  // per head
  bool operator==(const Mla&) const = default;
};

// Rotary frequencies stretched for longer sequences, Hugging Face's "llama3" rule (Llama 3 report,
// arXiv 2407.21783, section 3.4.3): wavelengths above original_positions / low_freq grow by
// `factor`, those below original_positions / high_freq stay, and between the two the change is
// gradual.
struct RopeScaling {
  double factor = 1.0;  // 1: no scaling, and the other fields have no meaning
  double low_freq = 1.0;
  double high_freq = 4.0;
  std::int64_t original_positions = 0;  // sequence length before stretching
  bool operator==(const RopeScaling&) const = default;
};

struct ModelConfig {
  std::string name;
  Family family = Family::kLlama;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;  // with MLA: nope_dim + rope_dim
  std::int64_t ffn = 0;       // width of the plain MLP
  std::int64_t vocab = 0;
  std::int64_t max_positions = 0;
  bool tied = false;  // the head's projection is the embedding's weight

  NormKind norm = NormKind::kRmsNorm;
  NormPlace norm_place = NormPlace::kBefore;
  double norm_eps = 1e-5;
  bool qkv_bias = false;     // on the query, key and value projections (gpt2, qwen2)
  bool linear_bias = false;  // on every other linear of the block (gpt2)
  QkNorm qk_norm = QkNorm::kNone;
  double rope_theta = 10000.0;  // unused by gpt2
  RopeScaling rope_scaling;
  std::int64_t window = 0;         // keys a query may look back to, itself included; 0: all
  std::int64_t window_every = 1;   // 1: every layer is local; 2: layers 0, 2, 4, ... are
  double attention_softcap = 0.0;  // c: scores become c tanh(scores / c)
  double logit_softcap = 0.0;
  double query_scale_dim = 0.0;   // scores are divided by its root; 0: by head_dim's
  bool scaled_embedding = false;  // embeddings are multiplied by the root of hidden
  Moe moe;
  Mla mla;
  std::int64_t mtp_layers = 0;  // multi-token-prediction blocks after the last one (DeepSeek-V3)
  double init_std = 0.02;
  double dropout = 0.0;  // only 0 is accepted: no pass draws masks

  bool operator==(const ModelConfig&) const = default;
};

// What a family takes for granted.
ModelConfig usual(Family family);

// Traits that the family decides.
Activation activation(const ModelConfig& config);
Positions positions(const ModelConfig& config);

// "llama"; the same words are accepted in model files.
inline std::string_view to_text(Family family) { return kFamilies.name_of(family); }
inline std::string_view to_text(NormKind norm) { return kNormKinds.name_of(norm); }
inline std::string_view to_text(NormPlace place) { return kNormPlaces.name_of(place); }
inline std::string_view to_text(QkNorm norm) { return kQkNorms.name_of(norm); }
inline std::string_view to_text(RouterScore score) { return kRouterScores.name_of(score); }

// Something wrong with a config: a kBadModel error that names the fields and their values, and the
// fields again, as they are called in a model file, the one to change first.
struct Problem {
  Error error;
  std::vector<std::string> fields;
};

// Everything that is wrong with `config`, empty when a model can be built from it; the second
// without the fields.
std::vector<Problem> problems_by_field(const ModelConfig& config);
std::vector<Error> problems(const ModelConfig& config);

}  // namespace lockstep::model

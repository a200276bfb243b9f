#include "lockstep/backtest/run_request.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "lockstep/backtest/run_machine.h"
#include "lockstep/base/divides.h"
#include "lockstep/base/units.h"

namespace lockstep::backtest {
namespace {

using cost::Memory;
using cost::ModelShape;
using cost::Price;
using cost::PriceRequest;
using model::Drop;

constexpr int kMost = static_cast<int>(cluster::kMaxDevices);

Error not_priced(const PublishedRun& run, std::string message) {
  return {Code::kRowNotPriced, std::move(message), "row " + run.text("id")};
}

// Numbers of the row, or the reason that names the first column without one.
class Reader {
 public:
  explicit Reader(const PublishedRun& run) : run_(run) {}

  double need(const char* column) {
    const auto value = run_.number(column);
    if (value && *value > 0) return *value;
    fail(column, "");
    return 1;
  }
  int need_whole(const char* column) {
    return run_.text(column).empty() ? static_cast<int>(need(column)) : whole_or(column, 1);
  }
  // Where the cell is empty, `otherwise`.
  int whole_or(const char* column, int otherwise, int least = 1, int most = kMost) {
    if (run_.text(column).empty()) return otherwise;
    const double value = run_.number(column).value_or(-1);
    if (value >= least && value <= most && value == std::floor(value))
      return static_cast<int>(value);
    fail(column, strf(", no whole number from %d to %d", least, most));
    return std::max(1, least);
  }
  // What a row that can be read must be.
  void require(bool holds, std::string otherwise) {
    if (!holds && reason_.empty()) reason_ = std::move(otherwise);
  }
  const std::string& reason() const { return reason_; }

 private:
  void fail(const char* column, const std::string& why) {
    const std::string& text = run_.text(column);
    require(false, text.empty() ? strf("%s is not given", column)
                                : strf("%s is `%s`", column, text.c_str()) + why);
  }

  const PublishedRun& run_;
  std::string reason_;
};

// What the tables do not have of well-known mixtures: DeepSeek-V2 and V3 (arXiv 2405.04434,
// 2412.19437), Llama 4 Maverick and gpt-oss (their model cards).
void add_known_experts(const PublishedRun& run, ModelShape& s) {
  const bool latent = run.text("arch") == "moe-mla";
  if (latent) {
    const bool v2 = s.hidden == 5120;
    s.q_rank = 1536;
    s.kv_rank = 512;
    s.rope_dim = 64;
    s.qk_dim = 192;
    s.v_dim = 128;
    s.kv_heads = s.heads;
    s.expert_ffn = v2 ? 1536 : 2048;
    s.shared_ffn = v2 ? 3072 : 2048;
    if (s.ffn <= s.expert_ffn) s.ffn = v2 ? 12288 : 18432;
    s.routed_nodes = 4;
    // Shortened models keep one dense layer.
    s.dense_layers = v2 || s.layers < 30 ? 1 : 3;
    return;
  }
  s.expert_ffn = s.ffn;
  if (says(run, "model", "gpt-oss")) s.window = 128, s.window_every = 2;
  if (says(run, "model", "Maverick") || says(run, "model", "maverick")) {
    s.expert_ffn = s.shared_ffn = 8192;
    s.ffn = 16384;
    s.moe_every = 2;
  }
}

Result<ModelShape> model_of(const PublishedRun& run) {
  Reader read(run);
  ModelShape s;
  s.layers = read.need_whole("layers");
  s.hidden = read.need("hidden");
  s.heads = read.need("heads");
  s.ffn = read.need("ffn_hidden");
  if (!read.reason().empty()) return not_priced(run, read.reason());
  s.kv_heads = run.number("kv_heads").value_or(s.heads);
  s.qk_dim = s.v_dim = run.number("head_dim").value_or(s.hidden / s.heads);
  const std::string& arch = run.text("arch");
  const bool is_gpt = arch == "gpt", is_relu2 = arch == "gpt-relu2";
  const bool is_moe = arch == "moe" || arch == "moe-mla";
  if (!is_gpt && !is_relu2 && !is_moe && arch != "llama")
    return not_priced(run, "arch is `" + arch + "`");
  // A vocabulary that is not given is GPT-2's.
  s.vocab = run.number("vocab").value_or(51200);
  s.mlp_matrices = is_gpt || is_relu2 ? 2 : 3;
  s.layer_norm = is_gpt || is_relu2;
  s.biases = is_gpt;
  s.tied = is_gpt || (says(run, "notes", "tied embedding") && !says(run, "notes", "untied"));
  if (is_gpt) s.learned_positions = run.number("seq_len").value_or(2048);
  if (!is_moe) return s;
  Reader experts(run);
  s.experts = experts.need("moe_experts");
  s.top_k = experts.need("moe_topk");
  if (!experts.reason().empty()) return not_priced(run, experts.reason());
  add_known_experts(run, s);
  return s;
}

const pipeline::CatalogRow& schedule_of(const PublishedRun& run, int chunks) {
  const std::string& name = run.text("schedule");
  if (name == "ZB") return pipeline::row("zb-h1");
  if (name == "ZB-V") return pipeline::row("zbv");
  if (name == "V-half") return pipeline::row("v-half");
  if (name == "V-min") return pipeline::row("v-min");
  return pipeline::row(chunks > 1 ? "interleaved" : "1f1b");
}

constexpr Drop kScores = {.scores = true};
constexpr Drop kProducts = {
    .attn_normed = true, .mlp_normed = true, .product = true, .attention = true};

std::vector<Drop> drops_of(const PublishedRun& run, const cost::Stack& stack, int zero) {
  const std::string& text = run.text("recompute");
  // Who recomputes nothing may still drop what a cheap pass brings back, to fit what else is not
  // given (Llama 3, arXiv 2407.21783, section 3.3.2, on tensors it frees).
  const bool open = run.text("vpp").empty() || run.text("micro_batch").empty();
  if (text == "none" && !open) return {model::kKeepAll};
  if (text == "none") return {model::kKeepAll, model::kSelective};
  if (text == "full") return {model::kWholeBlock};
  // torchtitan's is "op" unless it says otherwise.
  if (text == "selective" && (is_torchtitan(run) || says(run, "notes", "selective op") ||
                              says(run, "notes", "perator-level") || says(run, "notes", "per-op")))
    return {{.alternate_products = true}};
  // A compiler's policy keeps products with weights and recomputes attention and all between.
  if (text == "selective" &&
      (says(run, "notes", "remat") || says(run, "notes", "checkpoint policy")))
    return {kProducts};
  if (text == "selective") return {zero >= 3 && stack.flash ? model::kSelective : kScores};
  return {model::kKeepAll, stack.flash ? model::kSelective : kScores, model::kWholeBlock};
}

// Values that a setting may have: the given one, or what fits the sizes. A part of a sequence is
// what one of its cp ranks holds.
Result<std::vector<int>> microbatches_of(const PublishedRun& run, const PriceRequest& r) {
  const std::int64_t own = r.global_batch / r.dp;
  if (run.text("micro_batch").empty()) {
    // torchtitan cuts a batch into as many as there are ranks (pipelining_utils.py of 9dec370,
    // pipeline_parallel_microbatches).
    if (is_torchtitan(run) && own % r.pp == 0) return std::vector{static_cast<int>(own / r.pp)};
    std::vector<int> sizes;
    for (const int size : {1, 2, 4, 8})
      if (own % size == 0) sizes.push_back(size);
    return sizes;
  }
  Reader read(run);
  const double given = read.need("micro_batch"), size = given < 1 ? given * r.cp : given;
  const char* const text = run.text("micro_batch").c_str();
  read.require(size == std::floor(size),
               strf("micro_batch is `%s`, no whole number of sequences over cp = %d", text, r.cp));
  read.require(size <= static_cast<double>(own),
               strf("micro_batch is %s, more than global_batch / dp", text));
  if (!read.reason().empty()) return not_priced(run, read.reason());
  const int whole = static_cast<int>(size);
  read.require(own % whole == 0,
               strf("micro_batch is `%s`, which does not divide global_batch / dp", text));
  if (!read.reason().empty()) return not_priced(run, read.reason());
  return std::vector{whole};
}

// A place of a pipeline holds a block, the embedding or the head.
Result<std::vector<int>> chunks_of(const PublishedRun& run, int layers, int pp) {
  Reader read(run);
  const int given = read.whole_or("vpp", 0), most = (layers + 2) / pp;
  read.require(pp == 1 || given <= most,
               strf("vpp is %d, but layers = %d and two ends fill pp x vpp = %d x %d at most",
                    given, layers, pp, most));
  if (!read.reason().empty()) return not_priced(run, read.reason());
  if (pp == 1) return std::vector{1};
  if (given > 0) return std::vector{given};
  // torchtitan's interleaved schedule has two (pipelining_utils.py, 2024).
  if (is_torchtitan(run) && says(run, "schedule", "interleaved")) return std::vector{2};
  std::vector<int> counts = {1};
  for (int v = 2; v <= most; ++v)
    if (layers % (v * pp) == 0 || (layers + 2) % (v * pp) == 0) counts.push_back(v);
  return counts;
}

void check_degrees(const ModelShape& shape, const PriceRequest& r, double devices, Reader& read) {
  const double product = 1.0 * r.tp * r.pp * r.cp * r.dp;
  read.require(product == devices,
               strf("tp x pp x cp x dp is %g, but gpus is %g", product, devices));
  read.require(r.pp <= shape.layers, strf("pp is %d, but layers is %d", r.pp, shape.layers));
  read.require(r.global_batch >= r.dp,
               strf("global_batch is %g, less than one sequence for each of dp = %d",
                    static_cast<double>(r.global_batch), r.dp));
  read.require(r.global_batch % r.dp == 0, strf("global_batch is %g, which dp = %d does not divide",
                                                static_cast<double>(r.global_batch), r.dp));
  const double experts = shape.has_experts() ? shape.experts : 1;
  read.require(divides(r.ep, experts) && divides(r.ep, product / r.pp),
               strf("ep is %d, which does not divide moe_experts = %g and tp x cp x dp = %g", r.ep,
                    experts, product / r.pp));
}

Result<PriceRequest> degrees_of(const PublishedRun& run, const ModelShape& shape) {
  Reader read(run);
  PriceRequest r;
  const int devices = read.need_whole("gpus");
  r.tp = read.need_whole("tp");
  r.pp = read.need_whole("pp");
  r.cp = read.whole_or("cp", 1);
  const double others = 1.0 * r.tp * r.pp * r.cp;
  r.dp = read.whole_or("dp", std::max(1, static_cast<int>(devices / others)));
  r.ep = read.whole_or("ep", 1);
  r.seq = read.need_whole("seq_len");
  r.global_batch = read.need_whole("global_batch");
  const bool is_fsdp = run.text("schedule").starts_with("FSDP");
  r.zero = read.whole_or("zero_stage", is_fsdp ? 3 : 1, 0, 3);
  check_degrees(shape, r, devices, read);
  if (!read.reason().empty()) return not_priced(run, read.reason());
  return r;
}

// What the text begins with; 0 where that is no number.
int number_at(std::string_view text) {
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// "FSDP group 128", "FSDP over 128, replicated twice".
int shard_group_of(const PublishedRun& run) {
  const std::string_view notes = run.text("notes");
  for (const std::string_view words : {"FSDP group ", "FSDP over "})
    if (const std::size_t at = notes.find(words); at != std::string_view::npos)
      return number_at(notes.substr(at + words.size()));
  return 0;
}

// "layers per stage incl. embedding/head: [7, 9, 9, 9]": the ends have one layer less.
void set_ends(const PublishedRun& run, PriceRequest& r) {
  constexpr std::string_view kWords = "layers per stage incl. embedding/head: [";
  const std::string_view notes = run.text("notes");
  const std::size_t at = notes.find(kWords);
  const std::size_t end = at == std::string_view::npos ? at : notes.find(']', at);
  if (end == std::string_view::npos || r.pp <= 1) return;
  const std::string_view list = notes.substr(0, end);
  r.first_layers = std::max(0, number_at(list.substr(at + kWords.size())) - 1);
  r.last_layers = std::max(0, number_at(list.substr(notes.find_last_of("[ ", end) + 1)) - 1);
}

// nanotron deals blocks by what they compute, the head being one of them
// (get_block_compute_costs).
void deal_by_compute(const ModelShape& s, PriceRequest& r) {
  const double head = s.vocab * s.hidden / plain_layer_params(s).tensor;
  const double each = (s.layers + head) / r.pp;
  if (r.pp <= 1 || each <= head) return;
  const auto rounded = [](double layers) { return static_cast<int>(std::lround(layers)); };
  r.first_layers = rounded(each);
  r.last_layers = r.pp > 2 ? std::max(1, rounded(each - head)) : s.layers - r.first_layers;
}

void set_experts(const PublishedRun& run, const ModelShape& shape, PriceRequest& r) {
  const int ranks = r.tp * r.cp * r.dp;
  const std::size_t named = run.text("notes").find("expert TP ");
  if (named != std::string::npos)
    r.etp = std::max(1, run.text("notes")[named + 10] - '0');
  else if (shape.has_experts() && shape.expert_ffn >= 8192 && ranks % (r.ep * r.tp) == 0)
    r.etp = r.tp;  // few and wide experts are cut by the tensor axis too
  if (ranks % (r.ep * r.etp) != 0) r.etp = 1;
}

// In a pipeline torchtitan gathers parameters once a step and sums whole gradients in f32
// (reshard_after_forward, torchtitan/parallelisms/parallelize_llama.py of 9dec370, 2024).
void keep_gathered(PriceRequest& r) {
  r.zero = 2;
  r.stack.weight_bytes = 2, r.stack.optimizer_bytes = 12;
  r.stack.reduce_each_microbatch = false;
}

}  // namespace

Result<RunRequest> request_of(const PublishedRun& run, const StackHabits& habits) {
  for (const char* words : {"LoRA", "lora"})
    if (says(run, "notes", words))
      return not_priced(run, "notes speak of LoRA, under which most weights have no gradient");
  const ModelShape shape = LS_TRY(model_of(run));
  PriceRequest base = LS_TRY(degrees_of(run, shape));
  cluster::Cluster machine = LS_TRY(machine_of(run, base.devices()));
  RunRequest made;
  made.shape = std::make_unique<ModelShape>(shape);
  made.cluster = std::make_unique<cluster::Cluster>(std::move(machine));
  base.shape = made.shape.get();
  base.cluster = made.cluster.get();
  base.rates = &cluster::rates_of(made.cluster->device);
  base.stack = stack_of(run, base.zero);
  if (is_torchtitan(run) && base.zero >= 3 && base.pp > 1) keep_gathered(base);
  set_habits(habits, stack_class_of(run, base.zero), base.stack);
  base.sp = run.text("seq_parallel").empty()
                ? base.tp > 1 && run.number("year").value_or(2024) >= 2023
                : run.number("seq_parallel") == 1.0;
  const std::string& precision = run.text("precision");
  if (precision.find("fp8") != std::string::npos) base.precision = cost::Precision::kFp8;
  if (precision == "fp32") base.precision = cost::Precision::kFp32;
  set_experts(run, shape, base);
  set_ends(run, base);
  if (is_nanotron(run)) deal_by_compute(shape, base);
  if (const int shards = shard_group_of(run); shards > 0 && base.dp * base.cp % shards == 0)
    base.dp_shard = shards;
  const std::vector<Drop> drops = drops_of(run, base.stack, base.zero);
  made.policies = drops.size();
  const std::vector<int> sizes = LS_TRY(microbatches_of(run, base));
  const std::vector<int> chunk_counts = LS_TRY(chunks_of(run, shape.layers, base.pp));
  for (const int size : sizes)
    for (const int chunks : chunk_counts)
      for (const Drop& drop : drops) {
        PriceRequest one = base;
        one.microbatch = size;
        one.chunks = chunks;
        one.schedule = &schedule_of(run, chunks);
        one.drop = drop;
        made.candidates.push_back(one);
      }
  return made;
}

namespace {

double between(double a, double b, double share) { return a + share * (b - a); }

// Some layers as in `a`, a share of them as in `b`: every term is a sum over layers.
Price blended(const Price& a, const Price& b, double share) {
  Price made = a;
  for (const auto& [name, term, meaning] : cost::kStepTerms)
    made.time.*term = between(a.time.*term, b.time.*term, share);
  for (double Memory::* part :
       {&Memory::activations, &Memory::logits, &Memory::transients, &Memory::holes})
    made.memory.*part = between(a.memory.*part, b.memory.*part, share);
  made.fits = b.fits;
  made.tokens_per_s = a.tokens_per_s * a.time.total() / made.time.total();
  return made;
}

// Policies from what keeps most to what keeps least. Where one does not fit and the next does, as
// many layers follow the next as must (Megatron's --recompute-num-layers).
std::vector<Priced> priced_policies(std::span<const PriceRequest> policies,
                                    const cluster::DeviceRates* rates) {
  std::vector<Priced> made;
  for (const PriceRequest& policy : policies) {
    Priced one{policy, {}};
    if (rates != nullptr) one.request.rates = rates;
    one.price = price(one.request);
    made.push_back(one);
    if (one.price.fits) break;
  }
  if (made.size() < 2 || !made.back().price.fits) return made;
  const Price &more = made[made.size() - 2].price, &less = made.back().price;
  const double over = device_bytes(more.memory) - more.usable;
  const double saved = device_bytes(more.memory) - device_bytes(less.memory);
  const double share = over / saved;
  if (share < 0.5) made.back().request.drop = made[made.size() - 2].request.drop;
  made.back().price = blended(more, less, share);
  return made;
}

// A published run did fit: where a setting is not given, an estimate a fifth above the device still
// counts.
int rank_of(const Priced& one) {
  constexpr double kSlack = 1.2;
  return one.price.fits ? 2 : device_bytes(one.price.memory) <= kSlack * one.price.usable ? 1 : 0;
}

// The fastest of many estimates is the luckiest one too, and whoever published did not try all:
// with known settings of calibration rows hidden, the fastest missed by 9 % and the middle one of
// those within a fifth of it by 7 (bench/backtest/README.md).
constexpr double kNear = 0.2;

// What makes a candidate better when less; a row's garbage may have made it no number, which is
// worse than any.
double weight_of(const Priced& one) {
  const double value = rank_of(one) > 0 ? one.price.time.total() : one.price.memory.allocated();
  return std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
}

bool is_better(const Priced& one, const Priced& than) {
  if (rank_of(one) != rank_of(than)) return rank_of(one) > rank_of(than);
  return weight_of(one) < weight_of(than);
}

}  // namespace

Priced price_run(const RunRequest& run, const cluster::DeviceRates* rates) {
  std::vector<Priced> settings;
  const std::size_t policies = run.policies;
  for (std::size_t i = 0; i + policies <= run.candidates.size(); i += policies) {
    const std::vector<Priced> priced = priced_policies({&run.candidates[i], policies}, rates);
    settings.push_back(*std::ranges::min_element(priced, is_better));
  }
  std::ranges::sort(settings, is_better);
  if (rank_of(settings.front()) == 0) return settings.front();
  const auto is_likely = [&, best = settings.front()](const Priced& one) {
    return rank_of(one) == rank_of(best) && weight_of(one) <= (1 + kNear) * weight_of(best);
  };
  const auto likely = std::ranges::count_if(settings, is_likely);
  return settings[static_cast<std::size_t>(likely - 1) / 2];
}

}  // namespace lockstep::backtest

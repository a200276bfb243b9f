#include "lockstep/backtest/run_request.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "lockstep/backtest/run_machine.h"
#include "lockstep/base/units.h"

namespace lockstep::backtest {
namespace {

using cost::Keep;
using cost::ModelShape;
using cost::Pipe;
using cost::PriceRequest;

Error not_priced(std::string message) { return {Code::kRowNotPriced, std::move(message), ""}; }

bool says(const PublishedRun& run, std::string_view column, std::string_view part) {
  return run.text(column).find(part) != std::string::npos;
}

// A positive number of the row, or the error that names the column.
class Reader {
 public:
  explicit Reader(const PublishedRun& run) : run_(run) {}
  double need(const char* column) {
    const auto value = run_.number(column);
    if (value && *value > 0) return *value;
    if (reason_.empty())
      reason_ = run_.text(column).empty() ? strf("%s is not given", column)
                                          : strf("%s is `%s`", column, run_.text(column).c_str());
    return 1;
  }
  const std::string& reason() const { return reason_; }

 private:
  const PublishedRun& run_;
  std::string reason_;
};

double year_of(const PublishedRun& run) { return run.number("year").value_or(2024); }

// What the tables do not have of well-known mixtures: DeepSeek-V2 and V3 (arXiv 2405.04434, 2412.19437), Llama 4
// Maverick and gpt-oss (their model cards).
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
  s.layers = read.need("layers");
  s.hidden = read.need("hidden");
  s.heads = read.need("heads");
  s.ffn = read.need("ffn_hidden");
  if (!read.reason().empty()) return not_priced(read.reason());
  s.kv_heads = run.number("kv_heads").value_or(s.heads);
  s.qk_dim = s.v_dim = run.number("head_dim").value_or(s.hidden / s.heads);
  const std::string& arch = run.text("arch");
  const bool is_gpt = arch == "gpt", is_relu2 = arch == "gpt-relu2";
  const bool is_moe = arch == "moe" || arch == "moe-mla";
  if (!is_gpt && !is_relu2 && !is_moe && arch != "llama")
    return not_priced("arch is `" + arch + "`");
  // A vocabulary that is not given is GPT-2's.
  s.vocab = run.number("vocab").value_or(51200);
  s.mlp_matrices = is_gpt || is_relu2 ? 2 : 3;
  s.layer_norm = is_gpt || is_relu2;
  s.biases = is_gpt;
  s.tied = is_gpt;
  if (is_gpt) s.learned_positions = run.number("seq_len").value_or(2048);
  if (!is_moe) return s;
  Reader experts(run);
  s.experts = experts.need("moe_experts");
  s.top_k = experts.need("moe_topk");
  if (!experts.reason().empty()) return not_priced(experts.reason());
  add_known_experts(run, s);
  return s;
}

bool is_compiled_program(const PublishedRun& run) {
  for (const char* compiled : {"JAX", "XLA", "Pax", "MaxText", "C/CUDA"})
    if (says(run, "notes", compiled)) return true;
  return false;
}

cost::Stack stack_of(const PublishedRun& run, int zero) {
  cost::Stack stack;
  const double year = year_of(run);
  const bool is_recent = year >= 2024;
  stack.flash =
      run.text("flash_attention").empty() ? year >= 2023 : run.number("flash_attention") != 0.0;
  stack.native_attention = is_recent || says(run, "notes", "flash_attention2");
  stack.whole_logits = says(run, "notes", "kernel: ");  // Aleph Alpha's trainer
  stack.fused_softmax = !says(run, "notes", "kernel: torch");
  stack.dropout = run.text("arch") == "gpt" && !stack.flash;
  stack.fused_norms = !says(run, "notes", "kernel: ") || says(run, "notes", "RMS kernel");
  stack.overlap_data = zero >= 3 || is_recent;
  stack.overlap_tensor = is_recent;
  stack.overlap_pipe = year >= 2023;
  // PyTorch's cross-entropy works on f32 copies of the logits; vendor stacks and compilers fuse it.
  stack.fused_loss = is_recent && (zero < 3 || is_compiled_program(run));
  stack.weight_grad_scratch = is_recent && zero < 3;
  if (says(run, "notes", "no compute/comm overlap"))
    stack.overlap_data = stack.overlap_tensor = stack.overlap_pipe = false;
  if (says(run, "notes", "no gradient bucketing overlap")) stack.overlap_data = false;
  for (const char* compiled :
       {"JAX", "XLA", "Pax", "MaxText", "torch.compile", "C/CUDA", "CUDA graph on"})
    if (says(run, "notes", compiled)) stack.host_factor = 0.3;
  // DeepSpeed in fp16 keeps 2-byte gradients; FSDP shards an f32 copy of the weights and reduces in 16 bits.
  if (run.text("precision") == "fp16") stack.grad_bytes = 2;
  // So do sharded optimizers in bf16, unless the source speaks of f32 gradients.
  if (zero >= 1 && !says(run, "notes", "fp32 grad")) stack.grad_bytes = 2;
  // DeepSpeed's optimizer also holds its shard's gradients in f32.
  if (says(run, "schedule", "DeepSpeed")) stack.optimizer_bytes = 16;
  if (zero >= 3) {
    stack.weight_bytes = 4;
    stack.grad_bytes = 4;
    stack.optimizer_bytes = 8;
    stack.reduce_each_microbatch = true;
  }
  if (run.text("precision") == "fp32") {
    stack.weight_bytes = 4;
    stack.grad_bytes = 4;
    stack.optimizer_bytes = 8;
  }
  return stack;
}

Pipe pipe_of(const PublishedRun& run, double chunks) {
  const std::string& name = run.text("schedule");
  if (name == "ZB") return Pipe::kZbH1;
  if (name == "ZB-V") return Pipe::kZbV;
  if (name == "V-half") return Pipe::kVHalf;
  if (name == "V-min") return Pipe::kVMin;
  return chunks > 1 ? Pipe::kInterleaved : Pipe::k1f1b;
}

std::vector<Keep> keeps_of(const PublishedRun& run, const cost::Stack& stack, int zero) {
  const std::string& text = run.text("recompute");
  if (text == "none") return {Keep::kAll};
  if (text == "full") return {Keep::kInput};
  if (text == "selective" &&
      (says(run, "notes", "selective op") || says(run, "notes", "perator-level")))
    return {Keep::kHalf};
  if (text == "selective") return {zero >= 3 && stack.flash ? Keep::kCheap : Keep::kNoScores};
  return {Keep::kAll, Keep::kCheap, Keep::kNoScores, Keep::kInput};
}

// Values that a setting may have: the given one, or what fits the sizes.
std::vector<double> microbatches_of(const PublishedRun& run, double own_batch) {
  if (const auto given = run.number("micro_batch"); given && *given > 0) return {*given};
  std::vector<double> sizes;
  for (const double size : {1.0, 2.0, 4.0, 8.0})
    if (std::fmod(own_batch, size) == 0) sizes.push_back(size);
  if (sizes.empty()) sizes.push_back(own_batch);
  return sizes;
}

std::vector<double> chunks_of(const PublishedRun& run, double layers, double pp) {
  if (const auto given = run.number("vpp"); given && *given > 0) return {pp > 1 ? *given : 1};
  std::vector<double> counts = {1};
  for (double v = 2; pp > 1 && v * pp <= layers + 2; ++v)
    if (std::fmod(layers, v * pp) == 0 || std::fmod(layers + 2, v * pp) == 0) counts.push_back(v);
  return counts;
}

Result<PriceRequest> degrees_of(const PublishedRun& run) {
  Reader read(run);
  PriceRequest r;
  const double devices = read.need("gpus");
  r.tp = read.need("tp");
  r.pp = read.need("pp");
  r.cp = run.number("cp").value_or(1);
  r.dp = run.number("dp").value_or(devices / (r.tp * r.pp * r.cp));
  r.ep = std::max(1.0, run.number("ep").value_or(1));
  r.seq = read.need("seq_len");
  r.global_batch = read.need("global_batch");
  if (!read.reason().empty()) return not_priced(read.reason());
  if (r.devices() != devices || r.dp < 1)
    return not_priced(strf("tp x pp x cp x dp is %g, but gpus is %g", r.devices(), devices));
  if (r.cp < 1 || r.global_batch < r.dp)
    return not_priced(strf("global_batch is %g, less than one sequence for each of dp = %g",
                           r.global_batch, r.dp));
  return r;
}

void set_experts(const PublishedRun& run, const ModelShape& shape, PriceRequest& r) {
  if (!shape.has_experts()) r.ep = 1;
  const std::size_t named = run.text("notes").find("expert TP ");
  if (named != std::string::npos)
    r.etp = std::max(1, run.text("notes")[named + 10] - '0');
  else if (shape.has_experts() && shape.expert_ffn >= 8192 && r.ep * r.tp <= r.tp * r.cp * r.dp)
    r.etp = r.tp;  // few and wide experts are cut by the tensor axis too
  if (r.ep * r.etp > r.tp * r.cp * r.dp) r.etp = 1;
}

}  // namespace

const StackGaps kFittedGaps = {0.0, 0.11};

StackClass stack_class_of(const PublishedRun& run, int zero) {
  const auto anywhere = [&](std::string_view word) {
    for (const char* column : {"source", "notes", "source_locator"}) {
      std::string text = run.text(column);
      std::ranges::transform(text, text.begin(),
                             [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      if (text.find(word) != std::string::npos) return true;
    }
    return false;
  };
  for (const char* compiled : {"jax", "xla", "maxtext", "torch.compile", "c/cuda"})
    if (anywhere(compiled)) return StackClass::kTuned;
  if (anywhere("deepspeed") || run.text("schedule").find("DeepSpeed") != std::string::npos)
    return StackClass::kOther;
  if (zero >= 3) return StackClass::kSharded;
  for (const char* vendor : {"megatron", "nvidia", "nemo", "mlperf"})
    if (anywhere(vendor)) return StackClass::kTuned;
  return StackClass::kOther;
}

Result<RunRequest> request_of(const PublishedRun& run, const StackGaps& gaps) {
  auto shape = model_of(run);
  if (!shape.ok()) return shape.error();
  auto degrees = degrees_of(run);
  if (!degrees.ok()) return degrees.error();
  auto machine = machine_of(run, degrees->devices());
  if (!machine.ok()) return machine.error();
  RunRequest made;
  made.shape = std::make_unique<ModelShape>(*shape);
  made.cluster = std::make_unique<cluster::Cluster>(*std::move(machine));
  PriceRequest base = *degrees;
  base.shape = made.shape.get();
  base.cluster = made.cluster.get();
  base.rates = &cluster::rates_of(made.cluster->device);
  const bool is_fsdp = run.text("schedule").starts_with("FSDP");
  base.zero =
      static_cast<int>(std::clamp(run.number("zero_stage").value_or(is_fsdp ? 3 : 1), 0.0, 3.0));
  base.stack = stack_of(run, base.zero);
  const StackClass kind = stack_class_of(run, base.zero);
  base.stack.gaps = kind == StackClass::kSharded ? gaps.sharded
                    : kind == StackClass::kOther ? gaps.other
                                                 : 0;
  base.sp = run.text("seq_parallel").empty() ? base.tp > 1 && year_of(run) >= 2023
                                             : run.number("seq_parallel") == 1.0;
  const std::string& precision = run.text("precision");
  if (precision.find("fp8") != std::string::npos) base.precision = cost::Precision::kFp8;
  if (precision == "fp32") base.precision = cost::Precision::kFp32;
  set_experts(run, *shape, base);
  for (const double size : microbatches_of(run, base.global_batch / base.dp))
    for (const double chunks : chunks_of(run, shape->layers, base.pp))
      for (const Keep keep : keeps_of(run, base.stack, base.zero)) {
        PriceRequest one = base;
        one.microbatch = size;
        one.chunks = chunks;
        one.pipe = pipe_of(run, chunks);
        one.keep = keep;
        if (one.microbatches() >= 1) made.candidates.push_back(one);
      }
  if (made.candidates.empty())
    return not_priced("micro_batch is " + run.text("micro_batch") +
                      ", more than global_batch / dp");
  return made;
}

Priced price_run(const RunRequest& run, const cluster::DeviceRates* rates) {
  // A published run did fit: where a setting is not given, an estimate a fifth above the device still counts.
  constexpr double kSlack = 1.2;
  Priced best;
  const auto plausible = [](const Priced& one) {
    return device_bytes(one.price.memory) <= kSlack * one.price.usable;
  };
  for (const PriceRequest& candidate : run.candidates) {
    Priced one{candidate, {}};
    if (rates != nullptr) one.request.rates = rates;
    one.price = price(one.request);
    const bool is_first = best.request.shape == nullptr;
    const auto rank = [&](const Priced& p) { return p.price.fits ? 2 : plausible(p) ? 1 : 0; };
    const bool is_better =
        !is_first &&
        (rank(one) != rank(best) ? rank(one) > rank(best)
         : rank(one) > 0         ? one.price.time.total() < best.price.time.total()
                                 : one.price.memory.allocated() < best.price.memory.allocated());
    if (is_first || is_better) best = one;
  }
  return best;
}

}  // namespace lockstep::backtest

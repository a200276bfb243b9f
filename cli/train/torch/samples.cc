#include "cli/train/torch/samples.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "cli/ranks.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/data/byte_text.h"
#include "lockstep/generate/decoder.h"
#include "lockstep/generate/sampler.h"
#include "lockstep/hf/export.h"
#include "lockstep/train/whole_weights.h"

namespace lockstep::cli {
namespace {

constexpr std::int64_t kTokens = 100;
// As `lockstep generate` draws by default.
constexpr generate::Sampling kDraws = {.temperature = 0.8};
constexpr const char* kStream = "generate.0";

class GatheredSource final : public hf::ParamSource {
 public:
  explicit GatheredSource(const train::WholeWeights& weights) : weights_(weights) {}
  DType type() const override { return weights_.type(); }
  Result<void> read(const std::string& name, const std::vector<std::int64_t>& /*shape*/,
                    std::int64_t first, std::span<std::byte> out) override {
    return weights_.read(name, first, out);
  }

 private:
  const train::WholeWeights& weights_;
};

}  // namespace

Result<std::optional<SampleRequest>> read_samples(const Args& args, const spec::Spec& spec,
                                                  bool is_json) {
  if (!args.has("sample")) {
    if (!args.has("sample-interval")) return std::optional<SampleRequest>();
    return Error{Code::kConflict, "--sample-interval, but there is no --sample",
                 "add --sample TEXT, a text to go on from"};
  }
  SampleRequest sample{.prompt = args.text("sample"), .interval = spec.train.eval_interval};
  if (args.has("sample-interval")) sample.interval = args.integer("sample-interval");
  if (sample.interval == 0)
    return Error{Code::kConflict,
                 "--sample, but nothing says after how many steps: the run does not evaluate",
                 "add --sample-interval N, or --set train.eval_interval=N"};
  if (spec.model.vocab != data::kByteVocab)
    return Error{Code::kConflict,
                 join_parts("--sample reads and writes bytes, ", data::kByteVocab,
                            " ids, and the vocabulary has ", spec.model.vocab),
                 "`lockstep generate` takes a checkpoint of --save-interval and a --tokenizer"};
  if (spec.device != DeviceKind::kCpu)
    return Error{Code::kNotRunYet, "--sample, but texts are generated on CPUs alone",
                 "`lockstep generate` takes a checkpoint of --save-interval"};
  const bool shows_nothing = args.flag("oracle") || is_json;
  if (shows_nothing && !args.has("save") && !args.has("metrics"))
    return Error{Code::kConflict, "--sample, but nothing would show the texts",
                 "add --save DIR or --metrics DIR, where samples.jsonl has them"};
  const auto tokenizer = byte_tokenizer();
  sample.request.prompt = LS_TRY(tokenizer->encode(sample.prompt));
  if (sample.request.prompt.empty()) sample.request.prompt = {*tokenizer->empty};
  const std::int64_t room = spec.model.max_positions - std::ssize(sample.request.prompt);
  sample.request.max_tokens = std::min(kTokens, room);
  sample.request.ends = tokenizer->ends;
  sample.request.num_ids = tokenizer->num_ids;
  LS_TRY(generate::check(spec.model, sample.request));
  return std::optional(std::move(sample));
}

void add_samples(const train::Job& job, SampleRequest sample, TrainOptions& options) {
  const model::ModelConfig& model = job.model.config;
  const std::int64_t width = wide_type(job.spec.train.dtype) == DType::kF64 ? 8 : 4;
  const std::int64_t cached = 2 * model.layers * model.kv_heads * model.head_dim *
                              (std::ssize(sample.request.prompt) + sample.request.max_tokens);
  // Gathered, and beside them those that the text is made with.
  const Bytes more = {width * (2 * count(job.model).total + cached)};
  options.samples =
      join_parts("every ", counted(sample.interval, "step"), " and at the end; between steps, ",
                 to_text(more), " of rank 0 that no prediction counts");
  options.sample_interval = sample.interval;
  options.sample = std::move(sample);
}

Samples::Samples(const model::Model& model, SampleRequest sample, std::string folder, bool resumes,
                 TrainLog& log)
    : model_(model),
      sample_(std::move(sample)),
      folder_(std::move(folder)),
      resumes_(resumes),
      log_(log) {}

void Samples::begins(const train::Progress& done, bool continues) {
  if (folder_.empty()) return;
  const std::string path = (std::filesystem::path(folder_) / "samples.jsonl").string();
  std::error_code unused;
  if (!(resumes_ && continues)) std::filesystem::remove(path, unused);
  Result<metrics::MetricsFile> opened = metrics::MetricsFile::resume(path, done.step);
  if (opened.ok())
    file_.emplace(*std::move(opened));
  else
    log_.trouble("samples", opened.error().message);
}

Result<std::string> Samples::generated(train::WholeWeights& weights) {
  GatheredSource source(weights);
  const auto decoder = LS_TRY(generate::Decoder::load(model_, source, source.type()));
  weights.forget();
  LS_TRY(tokenizer_->begin(sample_.request.prompt));
  std::string text;
  const auto on_token = [&](std::int64_t token) -> Result<std::optional<generate::Ending>> {
    text += LS_TRY(tokenizer_->next(token));
    return stop_on_signals() ? std::optional(generate::Ending::kInterrupted) : std::nullopt;
  };
  LS_TRY(
      generate::generate(*decoder, generate::Sampler(kDraws, kStream), sample_.request, on_token));
  return text + LS_TRY(tokenizer_->finish());
}

void Samples::weights(std::int64_t step, train::WholeWeights& weights) {
  const Result<std::string> text = generated(weights);
  if (!text.ok()) return log_.trouble("sample", join_parts("no sample: ", text.error().message));
  log_.sample(step, sample_.prompt, *text);
  if (!file_) return;
  const auto written = file_->add(
      metrics::event_line("sample", step + 1).set("prompt", sample_.prompt).set("text", *text));
  if (!written.ok()) log_.trouble("samples", written.error().message);
}

}  // namespace lockstep::cli

// What a checkpoint's weights compute and learn, for tests/oracles.
//   weights_worker logits <checkpoint> <batch> <seq>   reads batch x seq tokens (i64) from standard
//                                                      input, writes their logits (f32) to standard
//                                                      output
//   weights_worker train <checkpoint> <folder> <seq>   starts from the weights, trains one step in
//                                                      f32 on made-up text and saves the weights of
//                                                      step 1

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/slice.h"
#include "lockstep/comm/local/local.h"
#include "lockstep/data/mock_tokens.h"
#include "lockstep/model/user_model.h"
#include "lockstep/nn/flat_view.h"
#include "lockstep/nn/norm.h"
#include "lockstep/nn/softcap.h"
#include "lockstep/nn/unit_runner.h"
#include "lockstep/tensor/as_buffer.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/strict_kernels.h"
#include "lockstep/train/checkpoint.h"
#include "lockstep/train/job.h"
#include "lockstep/train/session.h"

namespace lockstep {
namespace {

using checkpoint::Checkpoint;

constexpr Seconds kPatience{60};

std::span<std::byte> bytes_of(const at::Tensor& tensor, std::int64_t first, std::int64_t count) {
  auto* const start = static_cast<float*>(tensor::as_buffer(tensor).data) + first;
  return std::as_writable_bytes(std::span(start, static_cast<std::size_t>(count)));
}

// A segment's flat buffer, a tied head's weight included.
at::Tensor params_of(Checkpoint& from, const model::Model& model, int segment) {
  const auto layouts = model::flat_layouts(model);
  const model::FlatLayout& layout = layouts[model.layout_of(segment)];
  at::Tensor flat = at::zeros({layout.padded(1)}, at::kFloat);
  for (const checkpoint::UnitSlice& part : checkpoint::unit_slices(
           model, segment, layout, {}, {0, layout.size}, checkpoint::Role::kWeight)) {
    const Result<void> read =
        from.read(part.slice, DType::kF32, bytes_of(flat, part.at, part.slice.size()));
    LS_CHECK(read.ok(), read.error().message);
  }
  return flat;
}

at::Tensor bias_of(Checkpoint& from, const model::Model& model, int unit) {
  const std::string name = model::name_at("blocks.{i}.moe.router.bias", model::Model::layer(unit));
  for (const checkpoint::Slice& slice : checkpoint::untrained_slices(model)) {
    if (slice.tensor != name) continue;
    const at::Tensor bias = at::zeros({slice.size()}, at::kFloat);
    const auto read = from.read(slice, DType::kF32, bytes_of(bias, 0, slice.size()));
    LS_CHECK(read.ok(), read.error().message);
    return bias;
  }
  return {};
}

int logits(Checkpoint from, std::int64_t batch, std::int64_t seq) {
  const model::Model model = *model::describe(*model::model_of(from.manifest().model));
  const model::ModelConfig& config = model.config;
  const auto layouts = model::flat_layouts(model);
  const at::Tensor tokens = at::empty({batch, seq}, at::kLong);
  const auto count = static_cast<std::size_t>(batch * seq);
  LS_CHECK(std::fread(tokens.mutable_data_ptr<std::int64_t>(), 8, count, stdin) == count);
  const nn::Rope rope(config, seq, at::kFloat, at::kCPU);
  at::Tensor x;
  for (int unit = 0; unit + 1 < model.num_units(); ++unit) {
    const int experts = experts_of(unit, model.num_units());
    const bool has_experts = model.unit(unit).has_experts();
    const nn::UnitPlace place(layouts[model.layout_of(unit)],
                              has_experts ? &layouts[model.layout_of(experts)] : nullptr);
    const nn::UnitRunner runner(config, model.unit(unit), place, {.batch = batch, .seq = seq},
                                &rope);
    nn::Kept none;
    const nn::UnitBuffers params = {params_of(from, model, unit),
                                    has_experts ? params_of(from, model, experts) : at::Tensor()};
    x = runner.run(parts::UnitPass::kEvaluate, std::move(x), none,
                   {.params = params, .tokens = tokens, .router_bias = bias_of(from, model, unit)});
  }
  const int last = model.num_units() - 1;
  const at::Tensor params = params_of(from, model, last);
  const auto place = [&](const char* name) {
    return nn::place_of(model.unit(last), layouts[2], {name});
  };
  at::Tensor gain = nn::vector_at(params, place("head.norm.weight"));
  if (config.norm == model::NormKind::kRmsNormPlusOne) gain = gain.clone().add_(1.0);
  x = config.norm == model::NormKind::kLayerNorm
          ? nn::layer_norm(x, gain, nn::vector_at(params, place("head.norm.bias")), config.norm_eps)
                .y
          : nn::rms_scale(x, nn::rms_rstd(x, config.norm_eps), gain);
  const at::Tensor out = at::mm(x, nn::matrix_at(params, place("head.weight"), config.hidden).t());
  if (config.logit_softcap > 0.0) nn::softcap(out, config.logit_softcap, {});
  const auto numel = static_cast<std::size_t>(out.numel());
  return std::fwrite(out.const_data_ptr<float>(), 4, numel, stdout) == numel ? 0 : 1;
}

int train_one(Checkpoint from, const std::string& folder, std::int64_t seq, std::int64_t tp) {
  spec::Spec spec;
  spec.model = *model::model_of(from.manifest().model);
  spec.batch = {seq, 4, 1};
  spec.layout.degrees.tp = tp;
  if (spec.model.moe.experts > 0) spec.layout.degrees.etp = tp;
  spec.train = {.steps = 1, .lr = {.peak = 1e-2}, .seed = 1, .dtype = DType::kF32};
  const train::Job job = train::make_job(spec).value();
  const data::MockTokens tokens(1, spec.model.vocab, false);
  comm::run_local(static_cast<int>(tp), [&](comm::World& world) {
    train::Session session(job, world, "", tokens, kPatience);
    const auto started = train::load_weights(job, session, world, "load", from.path(), kPatience);
    LS_CHECK(started.ok(), started.error().message);
    const train::StepReport report = session.step(0);
    LS_CHECK(report.updated);
    train::Saver saver(job, session, world, "save", {.folder = folder}, kPatience);
    saver.save({1, report.sequences, report.tokens});
    saver.finish();
  });
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;  // NOLINT(google-build-using-namespace)
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 4) return 2;
  tensor::request_strict_kernels();
  tensor::install_counting_allocator();
  checkpoint::Checkpoint from = checkpoint::Checkpoint::open(words[1]).value();
  if (words[0] == "logits")
    return logits(std::move(from), std::stoll(words[2]), std::stoll(words[3]));
  if (words[0] != "train" || words.size() != 5) return 2;
  return train_one(std::move(from), words[2], std::stoll(words[3]), std::stoll(words[4]));
}

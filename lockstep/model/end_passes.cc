// A walk through the passes of nn/embedding.cc and nn/head.cc.
#include <algorithm>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/model/pass_record.h"

namespace lockstep::model {
namespace {

constexpr std::int64_t kTokenBytes = 8;

// Where tokens or labels lie in this rank's part of the vocabulary.
void take_token_rows(PassRecorder& r, std::int64_t tokens) {
  r.take("shifted", tokens * kTokenBytes);
  r.take("row", tokens * kTokenBytes);
  r.take("elsewhere", tokens);
  r.give("shifted");
}

void give_token_rows(PassRecorder& r) {
  r.give("row");
  r.give("elsewhere");
}

class EmbedPasses {
 public:
  EmbedPasses(const ModelConfig& config, const UnitSizes& sizes)
      : tp_(sizes.tp), seq_(sizes.seq), d_(config, sizes), r_(d_, sizes) {}

  PassRecord forward() {
    if (tp_ > 1) take_token_rows(r_, d_.tokens);
    r_.take(r_.summand("out"), r_.whole());
    if (tp_ > 1) give_token_rows(r_);
    r_.reduce_rows("out");
    return r_.finish();
  }

  PassRecord weight_grad() {
    r_.hold("d_out", r_.path());
    if (d_.is_narrow() && !d_.rotary)
      r_.moment("wide_positions", d_.wide_block(std::min(seq_, d_.path), d_.h));
    r_.gather_rows("d_out");
    if (r_.gathers()) r_.give("d_out");
    if (tp_ > 1) take_token_rows(r_, d_.tokens);
    if (d_.is_narrow()) r_.moment("wide_rows", d_.wide_block(d_.tokens, d_.h));
    if (tp_ > 1) give_token_rows(r_);
    r_.give(r_.gathered("d_out"));
    return r_.finish();
  }

 private:
  const std::int64_t tp_, seq_;
  const UnitDims d_;
  PassRecorder r_;
};

class HeadPasses {
 public:
  HeadPasses(const ModelConfig& config, const UnitSizes& sizes)
      : tp_(sizes.tp),
        d_(config, sizes),
        vocab_(config.vocab / sizes.tp),
        chunk_(sizes.head_chunk > 0 ? sizes.head_chunk : d_.tokens),
        r_(d_, sizes) {
    LS_CHECK(config.vocab % sizes.tp == 0, "tensor degree ", sizes.tp, " does not divide ",
             config.vocab, " rows of a vocabulary");
    r_.hold("input", r_.path());
    r_.norm("input", "normed", d_.unit_rows());
    r_.gather_rows("normed");
    if (r_.gathers()) r_.give("normed");
  }

  PassRecord loss() {
    r_.give_stats("input");
    for_each_chunk([&](std::int64_t n) {
      if (tp_ > 1)
        shared_loss(n, /*with_grad=*/false);
      else
        chunk_loss(n);
      r_.give("logits");
    });
    r_.give(r_.gathered("normed"));
    r_.give("input");
    return r_.finish();
  }

  PassRecord loss_and_grad() {
    r_.take(r_.summand("d_in"), r_.whole());
    for_each_chunk([&](std::int64_t n) {
      if (tp_ > 1)
        shared_grad(n);
      else
        chunk_grad(n);
      r_.give(d_.is_narrow() ? "d_logits" : "logits");
    });
    r_.give(r_.gathered("normed"));
    r_.reduce_rows("d_in");
    r_.norm_grad("d_norm", d_.unit_rows());
    r_.give("d_norm");
    if (d_.layer_norm) r_.give("d_norm_bias");
    r_.give_stats("input");
    r_.give("input");
    return r_.finish();
  }

 private:
  template <class Fn>
  void for_each_chunk(Fn fn) {
    for (std::int64_t begin = 0; begin < d_.tokens; begin += chunk_) {
      const std::int64_t n = std::min(chunk_, d_.tokens - begin);
      r_.take("logits", n * vocab_ * d_.wide);
      fn(n);
    }
  }

  void chunk_loss(std::int64_t n) { r_.moment("losses", n * 8); }
  void chunk_grad(std::int64_t n) {
    if (d_.is_narrow()) take_d_logits(n);
    chunk_loss(n);
    if (d_.is_narrow()) r_.give("logits");
  }
  void shared_grad(std::int64_t n) {
    shared_loss(n, /*with_grad=*/true);
    r_.take("is_valid", n);
    r_.take("row_scale", n * d_.wide);
    r_.give("is_valid");
    r_.give("row_scale");
    if (!d_.is_narrow()) return;
    take_d_logits(n);
    r_.give("logits");
  }
  void take_d_logits(std::int64_t n) { r_.take("d_logits", n * vocab_ * d_.s); }

  // Of the first rank; the others do not turn their losses into doubles, which is never the worst
  // moment.
  void shared_loss(std::int64_t n, bool with_grad) {
    take_token_rows(r_, n);
    r_.take("softmax", 3 * n * d_.wide);
    r_.gather("softmax", 3 * n);
    for (const char* part : {"greatest", "total", "log_probs", "share"}) r_.take(part, n * d_.wide);
    for (const char* part : {"softmax", "all_softmax", "greatest", "total"}) r_.give(part);
    if (d_.wide < 8) r_.moment("picked_f64", n * 8);
    if (with_grad) r_.moment("minus_one", n * d_.wide);
    for (const char* part : {"log_probs", "share"}) r_.give(part);
    give_token_rows(r_);
  }

  const std::int64_t tp_;
  const UnitDims d_;
  const std::int64_t vocab_, chunk_;
  PassRecorder r_;
};

}  // namespace

PassRecord embed_record(const ModelConfig& config, const UnitSizes& sizes, UnitPass pass) {
  switch (pass) {
    case UnitPass::kForward:
    case UnitPass::kEvaluate:
      return EmbedPasses(config, sizes).forward();
    case UnitPass::kInputGrad:
    case UnitPass::kBackwardInput:
      return {};  // the gradient of the output is the weight work
    case UnitPass::kWeightGrad:
    case UnitPass::kBackwardWeight:
      return EmbedPasses(config, sizes).weight_grad();
    default:
      LS_CHECK(false, "an embedding has no such pass");
      return {};
  }
}

PassRecord head_record(const ModelConfig& config, const UnitSizes& sizes, UnitPass pass) {
  switch (pass) {
    case UnitPass::kForward:
      return {};
    case UnitPass::kEvaluate:
      return HeadPasses(config, sizes).loss();
    case UnitPass::kHeadGrad:
      return HeadPasses(config, sizes).loss_and_grad();
    default:
      LS_CHECK(false, "a head has no such pass");
      return {};
  }
}

}  // namespace lockstep::model

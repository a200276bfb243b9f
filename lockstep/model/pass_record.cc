#include "lockstep/model/pass_record.h"

#include "lockstep/base/check.h"

namespace lockstep::model {

void PassRecorder::hold(const std::vector<UnitTensor>& tensors) {
  for (const UnitTensor& tensor : tensors) hold(tensor.name, tensor.bytes);
}

void PassRecorder::hold(const std::string& name, std::int64_t bytes) {
  LS_CHECK(live_.emplace(name, bytes).second, name, " is live already");
}

void PassRecorder::take(const std::string& name, std::int64_t bytes) {
  hold(name, bytes);
  record_.events.push_back({name, bytes});
}

void PassRecorder::give(const std::string& name) {
  const auto node = live_.extract(name);
  LS_CHECK(!node.empty(), name, " is not live");
  record_.events.push_back({name, -node.mapped()});
}

void PassRecorder::moment(const std::string& name, std::int64_t bytes) {
  take(name, bytes);
  give(name);
}

void PassRecorder::gather_rows(const std::string& x) {
  if (!gathers_) return;
  take(gathered(x), whole());
  collective(TensorOp::kAllGather, x, d_.tokens * d_.h, d_.s);
}

void PassRecorder::reduce_rows(const std::string& x) {
  if (gathers_) take(x, path());
  if (tp_ > 1)
    collective(gathers_ ? TensorOp::kReduceScatter : TensorOp::kAllReduce, x, d_.tokens * d_.h,
               d_.s);
  if (gathers_) give(summand(x));
}

void PassRecorder::gather(const std::string& x, std::int64_t elements) {
  take("all_" + x, elements * tp_ * d_.wide);
  collective(TensorOp::kAllGather, x, elements * tp_, d_.wide);
}

void PassRecorder::norm(const std::string& of, const std::string& normed, const NormRows& over) {
  if (d_.layer_norm) take(of + "_mean", over.rows() * d_.wide);
  take(of + "_rstd", over.rows() * d_.wide);
  if (d_.is_narrow() && !d_.layer_norm) moment("wide_rows", wide_block(over));
  scale(normed, over);
}

void PassRecorder::norm_again(const std::string& normed, const NormRows& over) {
  if (d_.layer_norm) take("row_stats", 2 * over.rows() * d_.wide);
  scale(normed, over);
  if (d_.layer_norm) give("row_stats");
}

void PassRecorder::scale(const std::string& normed, const NormRows& over) {
  widen_params(over);
  take(normed, over.rows() * over.columns * d_.s);
  // Of LayerNorm also the result and two numbers of each row.
  const std::int64_t block = wide_block(over);
  if (d_.is_narrow())
    moment("wide_rows", d_.layer_norm ? 2 * block + 2 * block / over.columns : block);
  give_params();
}

void PassRecorder::norm_grad(const std::string& d_norm, const NormRows& over) {
  widen_params(over);
  if (d_.layer_norm)
    layer_norm_grad(d_norm, over);
  else
    rms_norm_grad(d_norm, over);
  give_params();
}

void PassRecorder::layer_norm_grad(const std::string& d_norm, const NormRows& over) {
  if (!d_.is_narrow()) take("replaced", over.rows() * over.columns * d_.s);
  take(d_norm, over.columns * d_.wide);
  take(d_norm + "_bias", over.columns * d_.wide);
  const std::int64_t thread_sums = threads_ * 2 * over.columns * d_.wide;
  if (d_.is_narrow())  // gradient, input and result; the rows' part of the parameters'
    return moment("wide_rows", 3 * wide_block(over) + 2 * over.columns * d_.wide + thread_sums);
  moment("thread_sums", thread_sums);
  give("replaced");
}

void PassRecorder::rms_norm_grad(const std::string& d_norm, const NormRows& over) {
  if (d_.is_narrow()) {
    take(d_norm, over.columns * d_.wide);
    // Gradient, input and their product, a sum for every row, and the rows' part of the gain's.
    const std::int64_t block = wide_block(over);
    moment("wide_rows", 3 * block + block / over.columns + over.columns * d_.wide);
    return;
  }
  take("row_products", over.rows() * over.columns * d_.s);
  take("row_sums", over.rows() * d_.s);
  take(d_norm, over.columns * d_.s);
  give("row_products");
  give("row_sums");
}

void PassRecorder::widen_params(const NormRows& over) {
  if (!d_.is_narrow()) return;
  take("wide_gain", over.columns * d_.wide);
  if (d_.layer_norm) take("wide_bias", over.columns * d_.wide);
}

void PassRecorder::give_params() {
  if (!d_.is_narrow()) return;
  give("wide_gain");
  if (d_.layer_norm) give("wide_bias");
}

std::int64_t PassRecorder::wide_block(const NormRows& over) const {
  return d_.wide_block(over.tokens, over.per_token * over.columns);
}

void PassRecorder::give_stats(const std::string& of) {
  if (d_.layer_norm) give(of + "_mean");
  give(of + "_rstd");
}

void PassRecorder::collective(TensorOp op, const std::string& name, std::int64_t elements,
                              std::int64_t width) {
  const std::int64_t padded = (elements + tp_ - 1) / tp_ * tp_;
  record_.collectives.push_back({op, name, padded * width});
}

PassRecord pass_record(const ModelConfig& config, const Unit& unit, const UnitSizes& sizes,
                       UnitPass pass) {
  LS_CHECK(check_unit_bytes(config, sizes.seq).ok(), "no tables for ", config.name);
  switch (unit.kind) {
    case UnitKind::kEmbed:
      return embed_record(config, sizes, pass);
    case UnitKind::kBlock:
      return block_record(config, unit, sizes, pass);
    case UnitKind::kHead:
      return head_record(config, sizes, pass);
    case UnitKind::kMtp:
      break;
  }
  LS_CHECK(false, "no passes for a unit of kind ", to_text(unit.kind));
  return {};
}

}  // namespace lockstep::model

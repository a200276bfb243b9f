#include "lockstep/arch/pass_record.h"

#include "lockstep/base/check.h"

namespace lockstep::arch {

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

void PassRecorder::enter(const std::string& x) {
  if (!gathers_) return;
  take(entered(x), whole());
  collective(TensorOp::kAllGather, x, d_.tokens * d_.h);
}

void PassRecorder::leave(const std::string& x) {
  if (gathers_) take(x, path());
  if (tp_ > 1)
    collective(gathers_ ? TensorOp::kReduceScatter : TensorOp::kAllReduce, x, d_.tokens * d_.h);
  if (gathers_) give(summand(x));
}

void PassRecorder::gather(const std::string& x, std::int64_t elements) {
  take("all_" + x, elements * tp_ * d_.s);
  collective(TensorOp::kAllGather, x, elements * tp_);
}

void PassRecorder::norm(const std::string& of, const std::string& normed, std::int64_t rows,
                        std::int64_t columns) {
  if (d_.layer_norm) take(of + "_mean", rows * d_.s);
  take(of + "_rstd", rows * d_.s);
  take(normed, rows * columns * d_.s);
}

void PassRecorder::norm_again(const std::string& normed, std::int64_t rows, std::int64_t columns) {
  take(normed, rows * columns * d_.s);
  if (d_.layer_norm) moment("row_stats", 2 * rows * d_.s);
}

void PassRecorder::norm_grad(const std::string& d_norm, std::int64_t rows, std::int64_t columns) {
  take(d_.layer_norm ? "replaced" : "row_products", rows * columns * d_.s);
  if (!d_.layer_norm) take("row_sums", rows * d_.s);
  take(d_norm, columns * d_.s);
  if (!d_.layer_norm) return give("row_products"), give("row_sums");
  take(d_norm + "_bias", columns * d_.s);
  moment("thread_sums", 2 * columns * d_.s);
  give("replaced");
}

void PassRecorder::give_stats(const std::string& of) {
  if (d_.layer_norm) give(of + "_mean");
  give(of + "_rstd");
}

void PassRecorder::collective(TensorOp op, const std::string& name, std::int64_t elements) {
  const std::int64_t padded = (elements + tp_ - 1) / tp_ * tp_;
  record_.collectives.push_back({op, name, padded * d_.s});
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

}  // namespace lockstep::arch

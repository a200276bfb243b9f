#include <algorithm>

#include "lockstep/parts/kernel_script.h"

namespace lockstep::parts {
namespace {

// Temporaries of nn/device_kernels.cc, each until the end of the statement or function that it
// lives in.
class DeviceScript : public KernelScript {
 public:
  using KernelScript::KernelScript;
  std::vector<Step> run() {
    write();
    return take_steps();
  }

 private:
  bool is_narrow() const { return sizes_.is_narrow(); }
  std::int64_t wide(std::int64_t elements) const { return elements * sizes_.wide; }
  // Of a copy that is made only of what is narrow.
  std::int64_t copied(std::int64_t elements) const { return is_narrow() ? wide(elements) : 0; }
  std::int64_t of_norm() const { return sizes_.elements(normed()); }

  // Gains that are stored less one, plus one.
  template <class Body>
  void with_gain(Body body) {
    if (!sizes_.plus_one) return body();
    take("wide_gain", copied(columns()));
    take("gain", wide(columns()));
    give("wide_gain", copied(columns()));
    body();
    give("gain", wide(columns()));
  }
  // The same, and wide.
  template <class Body>
  void with_wide_gain(Body body) {
    if (sizes_.plus_one) return with_gain(body);
    with("wide_gain", copied(columns()), body);
  }
  std::int64_t rounded(std::int64_t elements) const {  // results that are wide with their gain
    return sizes_.plus_one ? copied(elements) : 0;
  }

  void rms_norm() {
    with_gain([&] {
      take("wide_x", rounded(of_norm()));
      take("wide_y", rounded(of_norm()));
      const std::int64_t stats = part_.out.size() > 1 ? 0 : wide(norm_rows());
      take("row_stats", stats);
      outputs(1);
      if (part_.out.size() > 1) give("wide_x", rounded(of_norm()));
      output(0);
      if (part_.out.size() == 1) give("wide_x", rounded(of_norm()));
      give("row_stats", stats);
      give("wide_y", rounded(of_norm()));
    });
  }
  void rms_norm_grad() {
    with_gain([&] {
      const std::int64_t operands = 2 * rounded(of_norm());
      const std::int64_t gain = is_narrow() && !sizes_.plus_one ? columns() * sizes_.width : 0;
      take("wide_operands", operands);
      take("wide_dx", rounded(of_norm()));
      take("d_gain", gain);
      if (sizes_.plus_one) output(1);
      give("wide_operands", operands);
      output(0);
      if (!sizes_.plus_one) output(1);
      give("d_gain", gain);
      give("wide_dx", rounded(of_norm()));
    });
  }
  void layer_norm() {
    const std::int64_t operands = copied(of_norm() + 2 * columns());
    take("wide_operands", operands);
    take("wide_y", copied(of_norm()));
    outputs(1);
    give("wide_operands", operands);
    output(0);
    give("wide_y", copied(of_norm()));
  }
  void layer_norm_again() {
    const std::int64_t all =
        copied(2 * of_norm() + 2 * columns()) + wide(2 * norm_rows());  // y too, if rounded
    with("wide_rows", all, [&] { output(0); });
  }
  void layer_norm_grad() {
    const std::int64_t operands = copied(2 * of_norm() + 2 * columns());
    take("wide_operands", operands);
    take("wide_dx", copied(of_norm()));
    outputs(1);
    give("wide_operands", operands);
    output(0);
    give("wide_dx", copied(of_norm()));
  }
  void wide_norm() {
    take("wide_x", copied(of_norm()));
    with_wide_gain([&] { take("wide_y", copied(of_norm())); });
    give("wide_x", copied(of_norm()));
    output(0);
    give("wide_y", copied(of_norm()));
  }
  void row_dots() {
    with("wide_operands", 2 * copied(of_norm()), [&] {
      with_wide_gain([&] { with("row_products", wide(of_norm()), [&] { outputs(); }); });
    });
  }
  void wide_norm_grad() {
    outputs();
    with("wide_operands", 2 * copied(of_norm()),
         [&] { with_wide_gain([&] { moment("row_sums", wide(norm_rows())); }); });
  }

  // Attention that writes all scores down, or LibTorch's flash kernel, which returns the state of
  // random numbers too.
  bool is_flash() const {
    const bool shifts = is_block() && sizes_.window > 0;
    return is_flash_head(head_dim()) && is_narrow() && !sizes_.capped && !shifts;
  }
  bool is_block() const {
    return part_.kind == Kind::kBlockAttention || part_.kind == Kind::kMoreAttention ||
           part_.kind == Kind::kBlockAttentionGrad || part_.kind == Kind::kMoreAttentionGrad;
  }
  bool is_more() const {
    return part_.kind == Kind::kMoreAttention || part_.kind == Kind::kMoreAttentionGrad;
  }
  bool is_scored() const {
    return is_block() || part_.kind == Kind::kScoredAttention ||
           part_.kind == Kind::kScoredAttentionGrad;
  }
  std::int64_t head_dim() const { return sizes_[Dim::kQ] / sizes_[Dim::kA]; }
  std::int64_t batch() const { return sizes_[Dim::kT] / sizes_.seq; }
  // What flash's gradient takes inside, of `seq` queries and keys: gradients of queries in f32 and
  // a sum of each row, for whole tiles of 128 queries and of 32 columns (of 256 beyond 192), and
  // where heads share keys, the gradients of keys and values for every head (mha_bwd in LibTorch's
  // flash_api.cpp).
  std::int64_t flash_sums(std::int64_t seq) const {
    const auto in_tiles = [](std::int64_t n, std::int64_t of) { return (n + of - 1) / of * of; };
    const std::int64_t heads = sizes_[Dim::kA];
    const std::int64_t columns = head_dim() <= 192 ? in_tiles(head_dim(), 32) : 256;
    const std::int64_t shared =
        heads == sizes_[Dim::kKv] ? 0 : 2 * batch() * seq * sizes_[Dim::kQ] * sizes_.width;
    return batch() * heads * in_tiles(seq, 128) * (columns + 1) * 4 + shared;
  }

  // Keys' rows that a part reads, and how many tokens of a sequence they are.
  std::int64_t key_rows() const {
    return part_.distance == kAllRanks ? sizes_[Dim::kN] : sizes_[Dim::kT];
  }
  std::int64_t pairs() const { return sizes_.seq * (key_rows() / batch()); }
  std::int64_t scores() const { return wide(batch() * sizes_[Dim::kA] * pairs()); }
  std::int64_t query_heads() const { return wide(sizes_[Dim::kT] * sizes_[Dim::kQ]); }
  std::int64_t key_heads() const { return wide(key_rows() * sizes_[Dim::kQ]); }
  std::int64_t row_stats() const { return wide(sizes_[Dim::kT] * sizes_[Dim::kA]); }
  // Keys' gradients of each head of queries, added up where there are several.
  std::int64_t d_key_heads() const {
    const bool are_shared = sizes_[Dim::kA] != sizes_[Dim::kKv];
    return key_heads() + (are_shared ? wide(key_rows() * sizes_[Dim::kK]) : 0);
  }
  void mask() {
    with("positions", (sizes_.seq + key_rows() / batch()) * 8 + pairs() * 9,
         [&] { moment("window", is_scored() && sizes_.window > 0 ? pairs() : 0); });
  }
  void attention() {
    if (is_flash() && is_block()) return flash_blocks();
    if (is_flash()) return with("random_state", 24, [&] { outputs(); });
    outputs();
    take("heads", query_heads() + key_heads());
    take("scores", scores());
    mask();
    give("heads", query_heads() + key_heads());
    with("row_stats", (is_more() ? 3 : 2) * row_stats(),
         [&] { moment("heads", key_heads() + query_heads()); });
    give("scores", scores());
  }
  void attention_grad() {
    if (is_flash() && is_block()) return flash_block_grads();
    if (is_flash())
      return with("random_state", 16, [&] {
        outputs();
        moment("flash_sums", flash_sums(sizes_.seq));
      });
    outputs();
    const std::int64_t all_scores = scores() * (sizes_.capped && is_scored() ? 2 : 1);
    with("heads", 2 * query_heads() + key_heads(), [&] {
      take("scores", all_scores);
      mask();
      moment("d_heads", d_key_heads());
      take("row_stats", row_stats());
      moment("heads", query_heads());
      take("d_scores", scores());
      moment("heads", key_heads());
      moment("d_heads", d_key_heads());
      moment("d_heads", query_heads());
      give("d_scores", scores());
      give("row_stats", row_stats());
      give("scores", all_scores);
    });
  }

  // By blocks of half a rank's queries and half a rank's keys.
  std::int64_t half_row_stats() const { return row_stats() / 2; }
  std::int64_t half_queries() const { return sizes_[Dim::kT] / 2 * sizes_[Dim::kQ] * sizes_.width; }
  void flash_blocks() {
    outputs();
    with("block", 24 + half_queries() + half_row_stats(),
         [&] { with("row_stats", half_row_stats(), [&] { moment("share", query_heads() / 2); }); });
  }
  void flash_block_grads() {
    outputs();
    const bool rounds = out(1).elem == Elem::kCompute;
    with("key_sums", rounds ? wide(key_rows() * sizes_[Dim::kKeys]) : 0, [&] {
      const std::int64_t d_keys = sizes_[Dim::kT] / 2 * sizes_[Dim::kKeys] * sizes_.width;
      take("random_state", 16);
      const bool has_gaps = batch() * sizes_[Dim::kA] > 1;
      take("row_stats", has_gaps ? half_row_stats() : 0);
      with("block", half_queries() + d_keys, [&] {
        moment("flash_sums", flash_sums(sizes_.seq / 2) + (batch() > 1 ? 2 * half_queries() : 0));
        give("random_state", 16);
        give("row_stats", has_gaps ? half_row_stats() : 0);
      });
    });
  }

  void totals() {
    with("totals", 2 * wide(rows()), [&] { outputs(); });
  }
  void scale_rows() {
    take("is_valid", rows());
    take("row_scale", wide(rows()));
    give("is_valid", rows());
    give("row_scale", wide(rows()));
  }
  void entropy() {
    const std::int64_t n = rows(), found = n * 9;
    take("shifted", n * 8);
    take("rows", found);
    give("shifted", n * 8);
    take("softmax", wide(3 * n));
    take("totals", wide(2 * n));
    take("log_probs", wide(n));
    take("share", wide(n));
    give("totals", wide(2 * n));
    give("log_probs", wide(n));
    give("softmax", wide(3 * n));
    if (part_.kind == Kind::kEntropyGrad) {
      moment("minus_one", wide(n));
      scale_rows();
    }
    outputs();
    give("share", wide(n));
    give("rows", found);
  }

  void write() {
    switch (part_.kind) {
      case Kind::kRmsNorm:
      case Kind::kRmsNormAgain:
        return rms_norm();
      case Kind::kRmsNormGrad:
        return rms_norm_grad();
      case Kind::kLayerNorm:
        return layer_norm();
      case Kind::kLayerNormAgain:
        return layer_norm_again();
      case Kind::kLayerNormGrad:
        return layer_norm_grad();
      case Kind::kSquares:
        return with("wide_x", copied(of_norm()), [&] { outputs(); });
      case Kind::kWideNorm:
        return wide_norm();
      case Kind::kRowDots:
        return row_dots();
      case Kind::kWideNormGrad:
        return wide_norm_grad();
      case Kind::kAttention:
      case Kind::kScoredAttention:
      case Kind::kBlockAttention:
      case Kind::kMoreAttention:
        return attention();
      case Kind::kAttentionGrad:
      case Kind::kScoredAttentionGrad:
      case Kind::kBlockAttentionGrad:
      case Kind::kMoreAttentionGrad:
        return attention_grad();
      case Kind::kScale:
        return outputs(), moment("factor", sizes_.width);
      case Kind::kLookup:
        return with_token_rows([&] { outputs(); });
      case Kind::kLookupWeight:
        return with_token_rows(
            [&] { moment("wide_rows", copied(sizes_[Dim::kT] * sizes_[Dim::kH])); });
      case Kind::kPositionsWeight:
        return moment("wide_rows", copied(position_rows() * sizes_[Dim::kH]));
      case Kind::kTokenRows:
        return with("shifted", rows() * 8, [&] { outputs(); });
      case Kind::kTotals:
        return totals();
      case Kind::kMinusOne:
        return outputs(), moment("minus_one", wide(rows()));
      case Kind::kScaleRows:
        return outputs(), scale_rows();
      case Kind::kEntropy:
      case Kind::kEntropyGrad:
        return entropy();
      default:
        return add(device_expert_steps(part_, pass_, values_, sizes_));
    }
  }
};

}  // namespace

std::vector<Step> device_kernel_steps(const Part& part, const Pass& pass, const Values& values,
                                      const Sizes& sizes) {
  return DeviceScript(part, pass, values, sizes).run();
}

}  // namespace lockstep::parts

#include "lockstep/parts/kernels.h"

#include <algorithm>

#include "lockstep/parts/kernel_script.h"

namespace lockstep::parts {
namespace {

class CpuScript : public KernelScript {
 public:
  using KernelScript::KernelScript;
  std::vector<Step> run() {
    write();
    return take_steps();
  }

 private:
  // f32 copies of a few rows at a time, where elements are narrower.
  std::int64_t wide_block(std::int64_t rows, std::int64_t columns) const {
    return std::min(rows, model::wide_rows(columns)) * columns * sizes_.wide;
  }

  std::int64_t norm_block() const {
    const std::int64_t tokens = sizes_[normed().dims.front()];
    return wide_block(tokens, sizes_.elements(normed()) / tokens);
  }

  // Also of gains that are stored less one.
  void with_wide_params(bool bias, auto body) {
    const std::int64_t each = columns() * sizes_.wide;
    const bool copies = sizes_.is_narrow() || sizes_.plus_one;
    if (copies) take("wide_gain", each);
    if (sizes_.is_narrow() && bias) take("wide_bias", each);
    body();
    if (copies) give("wide_gain", each);
    if (sizes_.is_narrow() && bias) give("wide_bias", each);
  }
  // Of LayerNorm also the result and two numbers of each row.
  void scale(bool layer) {
    with_wide_params(layer, [&] {
      output(0);
      const std::int64_t block = norm_block();
      if (sizes_.is_narrow())
        moment("wide_rows", layer ? 2 * block + 2 * block / columns() : block);
    });
  }
  void rms_norm() {
    outputs(1);
    if (sizes_.is_narrow()) moment("wide_rows", norm_block());
    scale(/*layer=*/false);
  }
  void layer_norm() {
    outputs(1);
    scale(/*layer=*/true);
  }
  void layer_norm_again() {
    const std::int64_t stats = 2 * norm_rows() * sizes_.wide;
    take("row_stats", stats);
    scale(/*layer=*/true);
    give("row_stats", stats);
  }
  void rms_norm_grad() {
    if (sizes_.is_narrow()) {
      // Gradient, input and their product, a sum for every row, and the rows' part of the gain's.
      return with_wide_params(false, [&] {
        outputs();
        const std::int64_t block = norm_block();
        moment("wide_rows", 3 * block + block / columns() + columns() * sizes_.wide);
      });
    }
    with_wide_params(false, [&] {
      const std::int64_t products = norm_rows() * columns() * sizes_.width;
      const std::int64_t sums = norm_rows() * sizes_.width;
      take("row_products", products);
      take("row_sums", sums);
      outputs();
      give("row_products", products);
      give("row_sums", sums);
    });
  }
  void squares() {
    outputs();
    if (sizes_.is_narrow()) moment("wide_rows", norm_block());
  }
  void row_dots() {
    const std::int64_t block = norm_block();
    if (sizes_.is_narrow())
      return with_wide_params(false, [&] { outputs(), moment("wide_rows", 2 * block); });
    with_wide_params(false, [&] {
      const std::int64_t products = norm_rows() * columns() * sizes_.width;
      take("row_products", products);
      outputs();
      give("row_products", products);
    });
  }
  void wide_norm_grad() {
    const std::int64_t sums = norm_rows() * sizes_.wide;
    with_wide_params(false, [&] {
      outputs();
      take("row_sums", sums);
      moment("scalar", scalar());
      if (sizes_.is_narrow()) moment("wide_rows", 2 * norm_block());
      give("row_sums", sums);
    });
  }
  void layer_norm_grad() {
    const std::int64_t thread_sums = sizes_.threads * 2 * columns() * sizes_.wide;
    with_wide_params(true, [&] {
      outputs();
      // Gradient, input and result; the rows' part of the parameters'.
      const std::int64_t blocks = 3 * norm_block() + 2 * columns() * sizes_.wide;
      if (sizes_.is_narrow())
        moment("wide_rows", blocks + thread_sums);
      else
        moment("thread_sums", thread_sums);
    });
  }

  // Columns of each group of queries and keys that lie side by side in one storage, and are turned
  // together.
  template <class Body>
  void for_rotated(Body body) {
    std::int64_t together = 0;
    for (std::size_t i = 0; i < part_.in.size(); ++i) {
      together += sizes_.elements(in(i)) / sizes_[Dim::kT];
      const bool joined =
          i + 1 < part_.in.size() && pass_.storage(part_.in[i]) == pass_.storage(part_.in[i + 1]);
      if (joined) continue;
      body(together);
      together = 0;
    }
  }
  void rope() {
    outputs();
    for_rotated([&](std::int64_t together) {
      if (sizes_.is_narrow())
        moment("rope_rows", wide_block(sizes_.seq, together) / 2 * 3);
      else
        moment("rope_half", sizes_[Dim::kT] * together / 2 * sizes_.width);
    });
  }

  // Query and key blocks of LibTorch's CPU flash attention, sized by the sequence
  // (aten/src/ATen/native/cpu/FlashAttentionKernel.cpp); buffers of each thread.
  std::int64_t flash_queries() const {
    const std::int64_t most = sizes_.seq >= 768 ? 256 : (sizes_.seq >= 192 ? 64 : 32);
    return std::min(most, sizes_.seq);
  }
  std::int64_t flash_keys() const { return std::min<std::int64_t>(512, sizes_.seq); }
  // Narrow types have a second tile in their own type. From 64 tokens on the forward kernel also
  // packs all keys and values, in pairs of rows, on a CPU whose units for bf16 want them so.
  void attention() {
    outputs();
    const std::int64_t queries = flash_queries(), keys = flash_keys(), seq = sizes_.seq;
    const std::int64_t head_dim = sizes_[Dim::kD];
    const auto even = [](std::int64_t n) { return n + n % 2; };
    std::int64_t each = sizes_.wide * queries * (keys + 2 + head_dim), packed = 0;
    if (sizes_.is_narrow() && (seq < 64 || !sizes_.packs_keys)) {
      each += sizes_.width * queries * keys;
    } else if (sizes_.is_narrow()) {
      each += sizes_.width * (queries * even(keys) + keys * head_dim);
      packed = sizes_.width * (sizes_[Dim::kT] / seq) * sizes_[Dim::kK] * (seq + even(seq));
    }
    moment("flash_scratch", sizes_.threads * each + packed);
  }
  // Sums of LibTorch's rows are counted where they are taken, on the rank's own thread.
  void attention_grad() {
    outputs();
    const std::int64_t tiles = model::AttentionTiles(sizes_.seq, sizes_[Dim::kD]).floats();
    moment("flash_scratch",
           sizes_.wide * (sizes_.is_narrow()
                              ? sizes_.threads * tiles
                              : flash_queries() * (2 * sizes_.threads * flash_keys() + 1)));
  }

  void scored_attention(bool backward) {
    outputs();
    const model::ScoreTiles tiles(sizes_.seq, sizes_[Dim::kD], sizes_.window);
    moment("scores", sizes_.wide * tiles.elements(backward, sizes_.is_narrow()));
  }

  // Of the keys of one rank after the other.
  void block_attention() {
    outputs();
    const bool backward =
        part_.kind == Kind::kBlockAttentionGrad || part_.kind == Kind::kMoreAttentionGrad;
    const model::ScoreTiles tiles(sizes_.seq, sizes_[Dim::kD], sizes_.window);
    moment("scores", sizes_.wide * tiles.block_elements(backward, sizes_.is_narrow()));
  }

  void lookup_weight() {
    with_token_rows([&] {
      if (sizes_.is_narrow()) moment("wide_rows", wide_block(sizes_[Dim::kT], sizes_[Dim::kH]));
    });
  }
  void positions_weight() {
    if (sizes_.is_narrow()) moment("wide_positions", wide_block(position_rows(), sizes_[Dim::kH]));
  }

  // A number that LibTorch wraps as a tensor of f64, and turns into the other operand's type.
  std::int64_t scalar() const { return 8 + (sizes_.wide < 8 ? sizes_.wide : 0); }

  void head_loss() {
    switch (part_.kind) {
      case Kind::kTokenRows:
        take("shifted", rows() * 8);
        outputs();
        return give("shifted", rows() * 8);
      case Kind::kTotals:
        take("greatest", rows() * sizes_.wide);
        take("total", rows() * sizes_.wide);
        outputs();
        give("greatest", rows() * sizes_.wide);
        return give("total", rows() * sizes_.wide);
      case Kind::kAddLosses:
        return moment("picked_f64", sizes_.wide < 8 ? rows() * 8 : 0);
      case Kind::kMinusOne:
        outputs();
        return moment("minus_one", rows() * sizes_.wide + scalar());
      case Kind::kScaleRows:
        outputs();
        take("is_valid", rows());
        take("row_scale", rows() * sizes_.wide);
        give("is_valid", rows());
        moment("scalar", scalar());
        return give("row_scale", rows() * sizes_.wide);
      default:  // kEntropy, kEntropyGrad
        outputs();
        return moment("losses", rows() * 8);
    }
  }

  void write() {
    switch (part_.kind) {
      case Kind::kRmsNorm:
        return rms_norm();
      case Kind::kLayerNorm:
        return layer_norm();
      case Kind::kRmsNormAgain:
        return scale(/*layer=*/false);
      case Kind::kLayerNormAgain:
        return layer_norm_again();
      case Kind::kRmsNormGrad:
        return rms_norm_grad();
      case Kind::kLayerNormGrad:
        return layer_norm_grad();
      case Kind::kSquares:
        return squares();
      case Kind::kRstd:
        return outputs(), moment("scalar", scalar());
      case Kind::kWideNorm:
        return scale(/*layer=*/false);
      case Kind::kRowDots:
        return row_dots();
      case Kind::kWideNormGrad:
        return wide_norm_grad();
      case Kind::kRope:
      case Kind::kRopeBack:
        return rope();
      case Kind::kAttention:
        return attention();
      case Kind::kAttentionGrad:
        return attention_grad();
      case Kind::kScoredAttention:
        return scored_attention(/*backward=*/false);
      case Kind::kScoredAttentionGrad:
        return scored_attention(/*backward=*/true);
      case Kind::kBlockAttention:
      case Kind::kMoreAttention:
      case Kind::kBlockAttentionGrad:
      case Kind::kMoreAttentionGrad:
        return block_attention();
      case Kind::kScale:
        return outputs(), moment("factor", sizes_.width);
      case Kind::kLookup:
        return with_token_rows([&] { outputs(); });
      case Kind::kLookupWeight:
        return lookup_weight();
      case Kind::kPositionsWeight:
        return positions_weight();
      case Kind::kEntropy:
      case Kind::kEntropyGrad:
      case Kind::kTokenRows:
      case Kind::kTotals:
      case Kind::kAddLosses:
      case Kind::kMinusOne:
      case Kind::kScaleRows:
        return head_loss();
      default:
        return outputs();
    }
  }
};

}  // namespace

std::vector<Step> kernel_steps(const Part& part, const Pass& pass, const Values& values,
                               const Sizes& own) {
  const bool sees_whole = own.context == model::CpMethod::kUlysses && !part.in.empty() &&
                          values[part.in[0]].dims[0] == Dim::kN;
  const Sizes sizes = sees_whole ? own.of_whole_sequences() : own;
  if (sizes.on_device) return device_kernel_steps(part, pass, values, sizes);
  return CpuScript(part, pass, values, sizes).run();
}

}  // namespace lockstep::parts

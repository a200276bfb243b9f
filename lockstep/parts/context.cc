#include "lockstep/parts/context.h"

#include <string>
#include <utility>

namespace lockstep::parts {
namespace {

class Sharing {
 public:
  Sharing(Written& list, const Sizes& sizes)
      : list_(list),
        sizes_(sizes),
        distances_(sizes.context == model::CpMethod::kRing
                       ? model::context_distances(sizes.cp, sizes.seq, sizes.window)
                       : std::vector<std::int64_t>{}) {}

  Parts run(Parts parts) {
    for (Part& part : parts) {
      of_ = &part;
      if (part.kind == Kind::kAttention || part.kind == Kind::kScoredAttention)
        attend();
      else if (part.kind == Kind::kAttentionGrad || part.kind == Kind::kScoredAttentionGrad)
        differentiate();
      else
        made_.push_back(std::move(part));
    }
    return std::exchange(made_, {});
  }

 private:
  bool is_ring() const { return sizes_.context == model::CpMethod::kRing; }

  ValueId add(std::string name, std::vector<Dim> dims, Elem elem) {
    return list_.values.add(std::move(name), std::move(dims), elem);
  }
  ValueId keys(std::string name, Dim rows, Elem elem) {
    return add(std::move(name), {rows, Dim::kKeys}, elem);
  }
  Part& put(Kind kind, std::vector<ValueId> in, std::vector<ValueId> out,
            std::int64_t distance = 0) {
    made_.push_back({kind, std::move(in), std::move(out), {}, of_->origin});
    made_.back().distance = distance;
    return made_.back();
  }
  ValueId communicate(Kind kind, ValueId in, ValueId out, std::int64_t distance = 0) {
    put(kind, {in}, {out}, distance).group = Group::kContext;
    return out;
  }
  ValueId exchange(ValueId in, const char* name, std::int64_t distance) {
    return communicate(Kind::kExchange, in, list_.values.like(in, name), distance);
  }

  // What adds up over blocks is wide, and `result` its last content, or where elements are narrow
  // what that is rounded to.
  ValueId running(ValueId result, bool is_last) {
    const Value& of = list_.values[result];
    if (is_last && !sizes_.is_narrow()) return result;
    return add(of.name, of.dims, Elem::kWide);
  }
  void finish(ValueId sum, ValueId result) {
    if (sum != result) put(Kind::kRound, {sum}, {result});
  }

  // This rank's keys, and with them those of all ranks or the first ones that come.
  struct Keys {
    ValueId own, next;
  };
  Keys begin(ValueId k, ValueId v) {
    const ValueId own = keys("keys", Dim::kT, Elem::kCompute);
    put(Kind::kJoinKeys, {k, v}, {own});
    if (!is_ring())
      return {own, communicate(Kind::kAllGather, own, keys("all_keys", Dim::kN, Elem::kCompute))};
    if (distances_.empty()) return {own, kNoValue};
    return {own, exchange(own, "other_keys", distances_.front())};
  }
  // Keys at distances_[i], while those at the next distance are on their way.
  ValueId take(Keys& keys, std::size_t i) {
    const ValueId taken = keys.next;
    if (i + 1 < distances_.size()) keys.next = exchange(keys.own, "other_keys", distances_[i + 1]);
    return taken;
  }

  void attend() {
    const ValueId q = of_->in[0], out = of_->out[0], lse = of_->out[1];
    const std::size_t first = made_.size();
    Keys keys = begin(of_->in[1], of_->in[2]);
    const std::size_t n = distances_.size();
    ValueId sum = running(out, n == 0), stat = n == 0 ? lse : list_.values.like(lse, "attn_lse");
    put(Kind::kBlockAttention, {q, is_ring() ? keys.own : keys.next}, {sum, stat},
        is_ring() ? 0 : kAllRanks);
    for (std::size_t i = 0; i < n; ++i) {
      const bool is_last = i + 1 == n;
      const ValueId block = take(keys, i), sum_so_far = sum, stat_so_far = stat;
      sum = running(out, is_last);
      stat = is_last ? lse : list_.values.like(lse, "attn_lse");
      put(Kind::kMoreAttention, {sum_so_far, stat_so_far, q, block}, {sum, stat}, distances_[i]);
    }
    finish(sum, out);
    for (std::size_t i = first; i < made_.size(); ++i)
      for (const ValueId id : made_[i].out)
        if (id != out && id != lse) list_.never_kept.push_back(id);
  }

  void differentiate() {
    const std::vector<ValueId> in = of_->in, result = of_->out;
    const ValueId d = in[0], q = in[1], out = in[4], lse = in[5], dq = result[0];
    Keys keys = begin(in[2], in[3]);
    const std::size_t n = distances_.size();
    ValueId sum = running(dq, n == 0), d_keys;
    if (is_ring()) {
      d_keys = this->keys("d_keys", Dim::kT, Elem::kWide);
      put(Kind::kBlockAttentionGrad, {d, q, keys.own, out, lse}, {sum, d_keys});
    } else {
      const ValueId all = this->keys("d_all_keys", Dim::kN, Elem::kCompute);
      put(Kind::kBlockAttentionGrad, {d, q, keys.next, out, lse}, {sum, all}, kAllRanks);
      const ValueId sums = this->keys("d_keys", Dim::kT, Elem::kCompute);
      d_keys = communicate(Kind::kReduceScatter, all, sums);
    }
    ValueId back = kNoValue;  // on its way to this rank
    for (std::size_t i = 0; i < n; ++i) {
      const ValueId block = take(keys, i), sum_so_far = sum;
      const ValueId made = this->keys("d_other_keys", Dim::kT, Elem::kCompute);
      sum = running(dq, i + 1 == n);
      put(Kind::kMoreAttentionGrad, {sum_so_far, d, q, block, out, lse}, {sum, made},
          distances_[i]);
      if (back != kNoValue) d_keys = add_back(d_keys, back);
      back = exchange(made, "d_own_keys", sizes_.cp - distances_[i]);
    }
    if (back != kNoValue) d_keys = add_back(d_keys, back);
    finish(sum, dq);
    put(Kind::kSplitKeys, {d_keys}, {result[1], result[2]});
  }
  ValueId add_back(ValueId d_keys, ValueId back) {
    const ValueId sum = list_.values.like(d_keys, "d_keys");
    put(Kind::kAdd, {d_keys, back}, {sum});
    return sum;
  }

  Written& list_;
  const Sizes& sizes_;
  const std::vector<std::int64_t> distances_;
  Parts made_;
  const Part* of_ = nullptr;
};

}  // namespace

void share_context(Written& forward, Parts* input, const Sizes& sizes) {
  if (sizes.context == model::CpMethod::kUlysses) return exchange_heads(forward, input);
  Sharing sharing(forward, sizes);
  forward.parts = sharing.run(std::move(forward.parts));
  if (input != nullptr) *input = sharing.run(std::move(*input));
}

}  // namespace lockstep::parts

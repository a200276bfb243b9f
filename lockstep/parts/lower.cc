#include "lockstep/parts/lower.h"

#include <numeric>
#include <utility>

#include "lockstep/parts/context.h"

namespace lockstep::parts {
namespace {

class Lowering {
 public:
  Lowering(Values& values, const Sizes& sizes)
      : values_(values), sizes_(sizes), now_(values.size()) {
    std::iota(now_.begin(), now_.end(), 0);
  }

  ValueId now(ValueId id) const { return id == kNoValue ? id : now_[static_cast<std::size_t>(id)]; }

  void run(Parts& parts) {
    Parts kept;
    for (Part& part : parts) {
      for (ValueId& id : part.in) id = now(id);
      if (part.kind == Kind::kAuxLoss || part.kind == Kind::kZLoss) {
        now_[static_cast<std::size_t>(part.out[0])] = part.in[0];
        continue;
      }
      const bool is_met = part.kind == Kind::kGatherRows || part.kind == Kind::kReduceRows ||
                          part.kind == Kind::kSumRanks;
      if (is_met && !lower_rows(part)) continue;
      kept.push_back(std::move(part));
    }
    parts = std::move(kept);
  }

 private:
  // False if nothing is left to do.
  bool lower_rows(Part& part) {
    const bool is_shared = group_size(part, sizes_) > 1;
    if (is_shared && sizes_.shares_rows && part.kind != Kind::kSumRanks) {
      const bool gathers = part.kind == Kind::kGatherRows;
      part.kind = gathers ? Kind::kAllGather : Kind::kReduceScatter;
      values_[gathers ? part.out[0] : part.in[0]].name += gathers ? "_gathered" : "_summand";
      return true;
    }
    if (is_shared && part.kind != Kind::kGatherRows) {
      part.kind = Kind::kAllReduce;
      return true;
    }
    now_[static_cast<std::size_t>(part.out[0])] = part.in[0];
    return false;
  }

  Values& values_;
  const Sizes& sizes_;
  std::vector<ValueId> now_;
};

Parts fold_residuals(const Parts& parts) {
  Parts made;
  for (const Part& part : parts) {
    const bool folds = part.kind == Kind::kAdd && !made.empty() &&
                       made.back().kind == Kind::kLinear && made.back().out[0] == part.in[0];
    if (!folds) {
      made.push_back(part);
      continue;
    }
    made.back().kind = Kind::kLinearAdd;
    made.back().in.push_back(part.in[1]);
    made.back().out = part.out;
  }
  return made;
}

}  // namespace

void lower(Written& forward, Backward* backward, const Sizes& sizes) {
  Lowering lowering(forward.values, sizes);
  lowering.run(forward.parts);
  forward.output = lowering.now(forward.output);
  for (ValueId& id : forward.never_kept) id = lowering.now(id);
  if (sizes.tp == 1) forward.parts = fold_residuals(forward.parts);
  if (backward != nullptr) {
    lowering.run(backward->input);
    lowering.run(backward->weight);
    backward->d_input = lowering.now(backward->d_input);
  }
  if (sizes.cp > 1) share_context(forward, backward == nullptr ? nullptr : &backward->input, sizes);
}

}  // namespace lockstep::parts

#include <string>
#include <utility>

#include "lockstep/parts/context.h"

namespace lockstep::parts {
namespace {

class HeadExchange {
 public:
  explicit HeadExchange(Written& list) : list_(list) {}

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
  using Ids = std::vector<ValueId>;

  ValueId add(std::string name, Dim columns, Elem elem = Elem::kCompute) {
    return list_.values.add(std::move(name), {Dim::kN, columns}, elem);
  }
  // Like queries, keys and values, of whole sequences.
  Ids whole_heads(const Ids& like) {
    Ids all;
    for (const ValueId id : like) {
      const bool is_query = list_.values[id].dims[1] == Dim::kA;
      all.push_back(list_.values.add(list_.values[id].name,
                                     {Dim::kN, is_query ? Dim::kShareA : Dim::kShareKv, Dim::kD}));
    }
    return all;
  }
  void put(Kind kind, Ids in, Ids out) {
    made_.push_back({kind, std::move(in), std::move(out), {}, of_->origin});
  }
  // Sends `from`, in pieces that `deal` makes, and has `join` make `into` of those that come.
  void exchange(Kind deal, const Ids& from, Kind join, const Ids& into, Dim columns) {
    const ValueId pieces = add("pieces", columns), others = add("other_pieces", columns);
    put(deal, from, {pieces});
    put(Kind::kAllToAll, {pieces}, {others});
    made_.back().group = Group::kContext;
    put(join, {others}, into);
  }
  void gather_sequences(const Ids& own, const Ids& whole, Dim columns) {
    exchange(Kind::kDealHeads, own, Kind::kWholeSequences, whole, columns);
  }
  void scatter_sequences(const Ids& whole, const Ids& own, Dim columns) {
    exchange(Kind::kDealTokens, whole, Kind::kAllHeads, own, columns);
  }

  void attend() {
    const ValueId out = of_->out[0];
    const std::size_t first = made_.size();
    heads_ = whole_heads(of_->in);
    gather_sequences(of_->in, heads_, Dim::kShareW);
    out_ = add(list_.values[out].name, Dim::kShareQ);
    lse_ = add(list_.values[of_->out[1]].name, Dim::kShareA, Elem::kWide);
    put(of_->kind, heads_, {out_, lse_});
    scatter_sequences({out_}, {out}, Dim::kShareQ);
    for (std::size_t i = first; i < made_.size(); ++i)
      if (const Kind kind = made_[i].kind;
          kind == Kind::kDealHeads || kind == Kind::kAllToAll || kind == Kind::kDealTokens)
        list_.never_kept.push_back(made_[i].out[0]);
  }

  void differentiate() {
    const ValueId d = of_->in[0];
    const ValueId whole_d = add(list_.values[d].name, Dim::kShareQ);
    gather_sequences({d}, {whole_d}, Dim::kShareQ);
    const Ids made = whole_heads(of_->out);
    put(of_->kind, {whole_d, heads_[0], heads_[1], heads_[2], out_, lse_}, made);
    scatter_sequences(made, of_->out, Dim::kShareW);
  }

  Written& list_;
  Parts made_;
  const Part* of_ = nullptr;
  Ids heads_;  // queries, keys and values of whole sequences, what attention makes of them, and lse
  ValueId out_ = kNoValue, lse_ = kNoValue;
};

}  // namespace

void exchange_heads(Written& forward, Parts* input) {
  HeadExchange exchange(forward);
  forward.parts = exchange.run(std::move(forward.parts));
  if (input != nullptr) *input = exchange.run(std::move(*input));
}

}  // namespace lockstep::parts

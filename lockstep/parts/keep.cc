#include "lockstep/parts/keep.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace lockstep::parts {
namespace {

using Ids = std::set<ValueId>;

class Keeping {
 public:
  Keeping(Written& forward, const Backward& backward, const Policy& policy)
      : forward_(forward),
        backward_(backward),
        weight_follows_(policy.weight_follows),
        dropped_(forward.never_kept.begin(), forward.never_kept.end()) {
    dropped_.insert(policy.dropped.begin(), policy.dropped.end());
    for (const Part& part : forward.parts) note(part, dropped_);
    for (const Part& part : forward.parts) note(part, late_);
    for (const Part& part : backward.input)
      if (!policy.weight_follows) note(part, late_);
  }

  Kept run() {
    Kept kept;
    kept.input = input_half();
    kept.weight = weight_half();
    drop_unread(kept.input, kept.weight);
    Parts both = kept.input;
    both.insert(both.end(), kept.weight.begin(), kept.weight.end());
    kept.work = live_in(kept.weight);
    kept.stash = live_in(both);
    std::erase(kept.stash, backward_.d_output);
    std::ranges::sort(kept.stash);
    kept.recompute = makers_of(kept.stash, forward_.parts);
    return kept;
  }

 private:
  void note(const Part& part, Ids& across) {
    for (const ValueId made : part.out) {
      maker_[made] = &part;
      if (part.kind == Kind::kAllGather) across.insert(made);
    }
  }
  ValueId now(ValueId id) const {
    const auto found = again_.find(id);
    return found == again_.end() ? id : found->second;
  }

  // What a part of W reads, or, of rows that it gathers for itself, what is gathered.
  std::vector<ValueId> sources(const Part& weight) const {
    std::vector<ValueId> all;
    for (const ValueId id : weight.in)
      if (late_.contains(id))
        all.insert(all.end(), maker_.at(id)->in.begin(), maker_.at(id)->in.end());
      else
        all.push_back(id);
    return all;
  }

  // Makes `id` again behind F|I.
  void make_again(ValueId id, Parts& into) {
    if (!dropped_.contains(id) || again_.contains(id)) return;
    Part copy = *maker_.at(id);
    for (const ValueId read : copy.in) make_again(read, into);
    const KindRow& row = row_of(copy.kind);
    const bool has_rest = std::none_of(copy.out.begin() + 1, copy.out.end(),
                                       [&](ValueId out) { return dropped_.contains(out); });
    if (row.again && copy.out[0] == id && has_rest) {
      copy.kind = *row.again;
      copy.in.insert(copy.in.end(), copy.out.begin() + 1, copy.out.end());
      copy.out.resize(1);
    }
    for (ValueId& read : copy.in) read = now(read);
    for (ValueId& out : copy.out) out = renew(out);
    into.push_back(std::move(copy));
  }
  ValueId renew(ValueId id) {
    return again_[id] = forward_.values.like(id, forward_.values[id].name);
  }

  // What W will read and F did not keep is made again in I, where the product's other half is.
  Parts input_half() {
    std::map<int, std::size_t> last;
    for (std::size_t i = 0; i < backward_.input.size(); ++i) last[backward_.input[i].origin] = i;
    Parts made;
    for (std::size_t i = 0; i < backward_.input.size(); ++i) {
      Part part = backward_.input[i];
      Parts again;
      for (const ValueId read : part.in) make_again(read, again);
      if (last.at(part.origin) == i)
        for (const Part& weight : backward_.weight)
          if (weight.origin == part.origin)
            for (const ValueId read : sources(weight)) make_again(read, again);
      made.insert(made.end(), again.begin(), again.end());
      for (ValueId& id : part.in) id = now(id);
      made.push_back(std::move(part));
    }
    return made;
  }

  // Rows are gathered once for parts side by side that read them.
  Parts weight_half() {
    Parts made;
    std::map<ValueId, ValueId> in_front;  // what the part in front reads of rows gathered for it
    for (Part part : backward_.weight) {
      std::map<ValueId, ValueId> gathered;
      for (ValueId& read : part.in) {
        if (!late_.contains(read) || (weight_follows_ && again_.contains(read))) {
          read = now(read);
          continue;
        }
        const ValueId rows = read;
        if (const auto known = in_front.find(rows); known != in_front.end()) {
          read = known->second;
        } else {
          Part copy = *maker_.at(rows);
          for (ValueId& source : copy.in) source = now(source);
          read = copy.out[0] = forward_.values.like(rows, forward_.values[rows].name);
          made.push_back(std::move(copy));
        }
        gathered[rows] = read;
      }
      made.push_back(std::move(part));
      in_front = std::move(gathered);
    }
    return made;
  }

  // Parts of I that neither it nor W reads.
  void drop_unread(Parts& input, const Parts& weight) const {
    Ids read = {backward_.d_input};
    for (const Part& part : weight) read.insert(part.in.begin(), part.in.end());
    Parts used;
    for (auto part = input.rbegin(); part != input.rend(); ++part) {
      if (std::ranges::none_of(part->out, [&](ValueId id) { return read.contains(id); })) continue;
      read.insert(part->in.begin(), part->in.end());
      used.insert(used.begin(), *part);
    }
    input = std::move(used);
  }

  // In the order in which they are read.
  static std::vector<ValueId> live_in(const Parts& parts) {
    Ids known;
    std::vector<ValueId> read;
    for (const Part& part : parts) {
      for (const ValueId id : part.in)
        if (known.insert(id).second) read.push_back(id);
      known.insert(part.out.begin(), part.out.end());
    }
    return read;
  }

  Written& forward_;
  const Backward& backward_;
  const bool weight_follows_;
  Ids dropped_, late_;                    // at F|I, at I|W
  std::map<ValueId, const Part*> maker_;  // in F or I
  std::map<ValueId, ValueId> again_;      // by value of F: made again behind F|I
};

}  // namespace

Parts makers_of(const std::vector<ValueId>& wanted, const Parts& parts) {
  Ids read(wanted.begin(), wanted.end());
  Parts makers;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (std::ranges::none_of(part->out, [&](ValueId id) { return read.contains(id); })) continue;
    read.insert(part->in.begin(), part->in.end());
    makers.push_back(*part);
  }
  std::ranges::reverse(makers);
  return makers;
}

Kept keep(Written& forward, const Backward& backward, const Policy& policy) {
  return Keeping(forward, backward, policy).run();
}

}  // namespace lockstep::parts

#include "lockstep/parts/place.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::parts {
namespace {

class Placing {
 public:
  Placing(const Values& values, const Sizes& sizes, Pass& pass)
      : values_(values),
        sizes_(sizes),
        pass_(pass),
        last_read_(values.size(), -1),
        maker_(values.size(), nullptr) {
    pass_.places.resize(values.size());
    for (const ValueId id : pass_.before)
      if (at(id).storage == kNoValue) at(id) = {id, -1};
    for (std::size_t i = 0; i < pass_.parts.size(); ++i) {
      for (const ValueId id : pass_.parts[i].in) last_read_[id] = static_cast<int>(i);
      for (const ValueId id : pass_.parts[i].out) maker_[id] = &pass_.parts[i];
    }
    for (const ValueId id : pass_.after) last_read_[id] = static_cast<int>(pass_.parts.size());
  }

  void run() {
    for (const Part& part : pass_.parts)
      if (part.kind == Kind::kConcat) join(part);
    for (std::size_t i = 0; i < pass_.parts.size(); ++i) {
      const Part& part = pass_.parts[i];
      for (const ValueId id : part.in)
        LS_CHECK(at(id).storage != kNoValue, to_text(part.kind), " reads ", values_[id].name,
                 ", which nothing made");
      for (std::size_t o = 0; o < part.out.size(); ++o) place_output(static_cast<int>(i), part, o);
    }
    find_ends();
  }

 private:
  Place& at(ValueId id) { return pass_.places[static_cast<std::size_t>(id)]; }

  bool may_overwrite(Kind kind) const {
    if (sizes_.on_device && row_of(kind).is_new_on_device) return false;
    switch (row_of(kind).in_place) {
      case InPlace::kNever:
        return false;
      case InPlace::kAlways:
      case InPlace::kEach:
        return true;
      case InPlace::kNarrow:
        return sizes_.is_narrow();
      case InPlace::kNotNarrow:
        return !sizes_.is_narrow();
    }
    return false;
  }
  // Whether a part behind `index` reads what is now in this memory.
  bool is_read_behind(int index, const Place& place) const {
    for (std::size_t id = 0; id < pass_.places.size(); ++id)
      if (last_read_[id] > index && overlap(pass_.places[id], place)) return true;
    return false;
  }

  // Pieces lie side by side.
  Place slice_of(ValueId storage, const std::vector<ValueId>& pieces, std::size_t which) const {
    std::int64_t column = 0;
    for (std::size_t i = 0; i < which; ++i)
      column += sizes_.elements(values_[pieces[i]]) / sizes_[values_[storage].dims[0]];
    return {storage, static_cast<int>(which), column};
  }

  // The operand whose memory the output may take.
  std::optional<ValueId> overwritten(int index, const Part& part, std::size_t output) {
    if (!may_overwrite(part.kind)) return std::nullopt;
    if (output > 0 && row_of(part.kind).in_place != InPlace::kEach) return std::nullopt;
    if (!is_read_behind(index, at(part.in[output]))) return part.in[output];
    const bool either = part.kind == Kind::kAdd;
    if (either && !is_read_behind(index, at(part.in[1]))) return part.in[1];
    return std::nullopt;
  }

  void place_output(int index, const Part& part, std::size_t output) {
    const ValueId id = part.out[output];
    if (row_of(part.kind).view) {
      at(id) = slice_of(at(part.in[0]).storage, part.out, output);
    } else if (const auto operand = overwritten(index, part, output)) {
      at(id) = at(*operand);
    } else if (at(id).storage == kNoValue) {  // not joined
      at(id) = {id, -1};
    }
  }

  // Gradients of narrow heads are written where they are joined, but by a device's kernels.
  void join(const Part& concat) {
    std::vector<ValueId> first;
    for (ValueId id : concat.in) {
      while (maker_[id] != nullptr && may_overwrite(maker_[id]->kind)) {
        const auto output = std::ranges::find(maker_[id]->out, id) - maker_[id]->out.begin();
        id = maker_[id]->in[static_cast<std::size_t>(output)];
      }
      first.push_back(id);
    }
    const Part* const writer = maker_[first[0]];
    const bool writes = writer != nullptr && (writer->kind == Kind::kAttentionGrad ||
                                              writer->kind == Kind::kScoredAttentionGrad);
    if (!sizes_.is_narrow() || sizes_.on_device || !writes || writer->out != first) return;
    for (std::size_t i = 0; i < first.size(); ++i) at(first[i]) = slice_of(concat.out[0], first, i);
  }

  void find_ends() {
    const int parts = static_cast<int>(pass_.parts.size());
    std::vector<int> last(pass_.places.size(), -1);  // by storage
    std::vector<int> first(pass_.places.size(), -1);
    const auto use = [&](ValueId id, int index) {
      const ValueId storage = pass_.storage(id);
      LS_CHECK(storage != kNoValue, values_[id].name, " stays, which nothing made");
      last[storage] = std::max(last[storage], index);
      if (first[storage] < 0) first[storage] = index;
    };
    for (const ValueId id : pass_.before) use(id, 0), first[pass_.storage(id)] = -1;
    for (int i = 0; i < parts; ++i) {
      const Part& part = pass_.parts[static_cast<std::size_t>(i)];
      for (const auto* ids : {&part.in, &part.out})
        for (const ValueId id : *ids) use(id, i);
    }
    for (const ValueId id : pass_.after) use(id, parts);
    pass_.ends.resize(pass_.parts.size());
    const auto begin = static_cast<int>(pass_.repeat_begin);
    const auto end = static_cast<int>(pass_.repeat_end);
    for (ValueId storage = 0; storage < static_cast<ValueId>(last.size()); ++storage) {
      if (last[storage] < 0 || last[storage] == parts) continue;
      const bool inside = last[storage] >= begin && last[storage] < end;
      if (inside && first[storage] < begin)
        pass_.repeat_ends.push_back(storage);
      else
        pass_.ends[static_cast<std::size_t>(last[storage])].push_back(storage);
    }
  }

  const Values& values_;
  const Sizes& sizes_;
  Pass& pass_;
  std::vector<int> last_read_;      // by value; the number of parts: stays
  std::vector<const Part*> maker_;  // by value
};

}  // namespace

Pass place(const Values& values, const Sizes& sizes, Parts parts, std::vector<ValueId> before,
           std::vector<ValueId> after, const Places& from) {
  Pass pass;
  pass.parts = std::move(parts);
  const auto once = [](const Part& part) { return !part.repeats; };
  const auto begin = std::ranges::find_if_not(pass.parts, once);
  pass.repeat_begin = static_cast<std::size_t>(begin - pass.parts.begin());
  pass.repeat_end =
      static_cast<std::size_t>(std::find_if(begin, pass.parts.end(), once) - pass.parts.begin());
  pass.before = std::move(before);
  pass.after = std::move(after);
  pass.places.resize(values.size());
  for (const ValueId id : pass.before)
    if (static_cast<std::size_t>(id) < from.size())
      pass.places[static_cast<std::size_t>(id)] = from[static_cast<std::size_t>(id)];
  Placing(values, sizes, pass).run();
  return pass;
}

}  // namespace lockstep::parts

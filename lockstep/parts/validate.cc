#include "lockstep/parts/validate.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"

namespace lockstep::parts {
namespace {

class SymbolicRun {
 public:
  SymbolicRun(const Pass& pass, const Values& values)
      : pass_(pass), values_(values), content_(values.size()), is_taken_(values.size(), false) {}

  std::string run() {
    check_gradients();
    for (const ValueId id : pass_.before) put(id);
    step(0, pass_.repeat_begin);
    const auto in_front = content_;
    for (int chunk = 0; chunk < 2 && pass_.repeat_end > pass_.repeat_begin; ++chunk) {
      begin_chunk(in_front);
      step(pass_.repeat_begin, pass_.repeat_end);
    }
    end(pass_.repeat_ends, "the last repetition");
    step(pass_.repeat_end, pass_.parts.size());
    check_rest();
    return problem_;
  }

 private:
  void fail(auto... parts) {
    if (problem_.empty()) problem_ = join_parts(parts...);
  }
  const std::string& name(ValueId id) const { return values_[id].name; }
  const Place& at(ValueId id) const { return pass_.places[static_cast<std::size_t>(id)]; }
  std::vector<ValueId>& content(ValueId id) {
    return content_[static_cast<std::size_t>(pass_.storage(id))];
  }
  bool holds(ValueId id) {
    return at(id).storage != kNoValue && std::ranges::count(content(id), id) > 0;
  }

  void check_gradients() {
    std::set<std::pair<Kind, std::string_view>> written;
    for (const Part& part : pass_.parts)
      if (writes_gradient(part) && !written.emplace(part.kind, part.param).second)
        fail(to_text(part.kind), " writes the gradient of ", part.param, " once more");
  }

  // Other rows of what was there in front of the repeat are as they were.
  void begin_chunk(const std::vector<std::vector<ValueId>>& in_front) {
    for (std::size_t i = pass_.repeat_begin; i < pass_.repeat_end; ++i)
      for (const ValueId id : pass_.parts[i].out) {
        made_.erase(id);
        if (at(id).storage != kNoValue)
          content(id) = in_front[static_cast<std::size_t>(pass_.storage(id))];
      }
  }

  void put(ValueId id) {
    if (at(id).storage == kNoValue) return fail(name(id), " has no place");
    std::erase_if(content(id), [&](ValueId other) { return overlap(at(other), at(id)); });
    content(id).push_back(id);
    is_taken_[static_cast<std::size_t>(pass_.storage(id))] = true;
  }

  void step(std::size_t begin, std::size_t end_index) {
    for (std::size_t i = begin; i < end_index; ++i) {
      const Part& part = pass_.parts[i];
      const KindRow& row = row_of(part.kind);
      for (const ValueId id : part.in)
        if (!holds(id)) return fail(row.name, " reads ", name(id), ", which is not there");
      check_under_way(part);
      if (row.spoils) std::erase(content(part.in[0]), part.in[0]);
      for (const ValueId id : part.out) {
        if (!made_.insert(id).second) fail(row.name, " makes ", name(id), " once more");
        if (row.view)
          content(id).push_back(id);
        else
          put(id);
      }
      end(pass_.ends[i], row.name);
    }
  }

  void check_under_way(const Part& part) {
    if (part.kind == Kind::kWait) {
      const auto is_it = [&](const Part* one) { return one->out[0] == part.in[0]; };
      if (std::erase_if(under_way_, is_it) == 0)
        fail("wait for ", name(part.in[0]), ", which is not under way");
    }
    const auto touches = [&](const std::vector<ValueId>& ids, ValueId id) {
      return std::ranges::any_of(ids, [&](ValueId one) { return overlap(at(one), at(id)); });
    };
    for (const Part* moving : under_way_) {
      if (touches(part.in, moving->out[0]) || touches(part.out, moving->out[0]))
        fail(to_text(part.kind), " touches ", name(moving->out[0]), ", which is under way");
      const bool spoils = row_of(part.kind).spoils && overlap(at(part.in[0]), at(moving->in[0]));
      if (spoils || touches(part.out, moving->in[0]))
        fail(to_text(part.kind), " overwrites ", name(moving->in[0]), ", which is being read");
    }
    if (row_of(part.kind).collective) under_way_.push_back(&part);
  }

  void end(const std::vector<ValueId>& storages, std::string_view behind) {
    for (const ValueId storage : storages) {
      const auto index = static_cast<std::size_t>(storage);
      if (!is_taken_[index]) fail(name(storage), " ends behind ", behind, " and was not there");
      for (const Part* moving : under_way_)
        if (pass_.storage(moving->in[0]) == storage || pass_.storage(moving->out[0]) == storage)
          fail(name(storage), " ends behind ", behind, " under a ", to_text(moving->kind));
      is_taken_[index] = false;
      content_[index].clear();
    }
  }

  void check_rest() {
    if (!under_way_.empty()) fail(name(under_way_[0]->out[0]), " is not waited for");
    std::vector<bool> stays(content_.size(), false);
    for (const ValueId id : pass_.after) {
      if (!holds(id)) fail(name(id), " does not stay");
      if (at(id).storage != kNoValue) stays[static_cast<std::size_t>(pass_.storage(id))] = true;
    }
    for (std::size_t storage = 0; storage < stays.size(); ++storage)
      if (is_taken_[storage] && !stays[storage])
        fail(name(static_cast<ValueId>(storage)), " is left behind");
  }

  const Pass& pass_;
  const Values& values_;
  std::vector<std::vector<ValueId>> content_;  // by storage
  std::vector<bool> is_taken_;                 // by storage
  std::set<ValueId> made_;
  std::vector<const Part*> under_way_;  // collectives
  std::string problem_;
};

}  // namespace

std::string validate(const Pass& pass, const Values& values) {
  return SymbolicRun(pass, values).run();
}

}  // namespace lockstep::parts

#include "lockstep/parts/read_pass.h"

#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/parts/kernels.h"

namespace lockstep::parts {
namespace {

class MemoryReader {
 public:
  MemoryReader(const Pass& pass, const Values& values, const Sizes& sizes)
      : pass_(pass), values_(values), sizes_(sizes), live_(values.size(), false) {
    for (const ValueId id : pass.before) live_[pass.storage(id)] = true;
  }

  MemoryEvents run() {
    for_each_part(
        pass_, sizes_, [&](std::size_t i, std::int64_t) { step(pass_.parts[i], pass_.ends[i]); },
        [&] { end(pass_.repeat_ends); });
    return std::move(events_);
  }

 private:
  void note(std::string_view name, std::int64_t bytes) {
    if (bytes != 0) events_.push_back({std::string(name), bytes});
  }
  void step(const Part& part, const std::vector<ValueId>& ends) {
    if (writes_gradient(part) && !std::exchange(has_gradients_, true))
      events_.push_back({std::string(kGradients), 0});
    for (const Step& step : kernel_steps(part, pass_, values_, sizes_)) {
      if (step.what == Step::kOutput)
        take(pass_.storage(part.out[step.output]));
      else
        note(step.name, step.what == Step::kTake ? step.bytes : -step.bytes);
    }
    end(ends);
  }
  void take(ValueId storage) {
    if (live_[storage]) return;
    live_[storage] = true;
    note(values_[storage].name, sizes_.bytes(values_[storage]));
  }
  void end(const std::vector<ValueId>& storages) {
    for (const ValueId storage : storages) {
      live_[storage] = false;
      note(values_[storage].name, -sizes_.bytes(values_[storage]));
    }
  }

  const Pass& pass_;
  const Values& values_;
  Sizes sizes_;
  std::vector<bool> live_;  // by storage
  bool has_gradients_ = false;
  MemoryEvents events_;
};

}  // namespace

MemoryEvents memory_events(const Pass& pass, const Values& values, Sizes sizes) {
  return MemoryReader(pass, values, sizes).run();
}

std::vector<Collective> read_collectives(const Pass& pass, const Values& values, Sizes sizes) {
  std::vector<Collective> all;
  const auto note = [&](std::size_t i, std::int64_t) {
    const Part& part = pass.parts[i];
    if (!row_of(part.kind).collective) return;
    const bool sums = part.kind == Kind::kReduceScatter || part.kind == Kind::kAllReduce;
    all.push_back({part.kind, values[sums ? part.out[0] : part.in[0]].name,
                   collective_bytes(part, values, sizes), part.group, group_size(part, sizes)});
  };
  for_each_part(pass, sizes, note, [] {});
  return all;
}

}  // namespace lockstep::parts

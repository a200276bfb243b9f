#include "tests/support/synthetic.h"

#include <cstring>
#include <thread>

#include "lockstep/base/check.h"
#include "lockstep/base/clock.h"

namespace lockstep::exec {

using program::Value;
using program::ValueKind;

SyntheticWorkspace::SyntheticWorkspace(const program::Program& program, Coord coord,
                                       int shard_index, Count count, Length length,
                                       int expert_shard)
    : step_(program.step),
      shard_index_(shard_index),
      expert_shard_(expert_shard),
      count_of_(std::move(count)),
      length_of_(std::move(length)) {
  for (const Value& value : persistent(program.step, coord))
    if (!is_number(value)) create(value);
}

Buffer SyntheticWorkspace::create(const Value& value) {
  const auto size = static_cast<std::size_t>(count_of_(value));
  std::vector<std::vector<float>>& unused = unused_[size];
  if (unused.empty()) unused.emplace_back(size, 1.0F);
  values_[value] = std::move(unused.back());
  unused.pop_back();
  return buffer(value);
}

Buffer SyntheticWorkspace::buffer(const Value& value) {
  std::vector<float>& memory = values_.at(value);
  return {memory.data(), static_cast<std::int64_t>(memory.size()), DType::kF32, {}};
}

void SyntheticWorkspace::drop(const Value& value) {
  auto node = values_.extract(value);
  LS_CHECK(!node.empty(), to_text(value), " is not there");
  unused_[node.mapped().size()].push_back(std::move(node.mapped()));
}

void SyntheticWorkspace::move(const Value& from, const Value& to) {
  auto node = values_.extract(from);
  node.key() = to;
  values_.insert(std::move(node));
}

void SyntheticWorkspace::add(Buffer from, Buffer into) {
  const auto* source = static_cast<const float*>(from.data);
  auto* target = static_cast<float*>(into.data);
  for (std::int64_t i = 0; i < into.count; ++i) target[i] += source[i];
}

void SyntheticWorkspace::copy(Buffer from, Buffer into) {
  std::memcpy(into.data, from.data, static_cast<std::size_t>(into.bytes()));
}

void SyntheticWorkspace::compute(const program::Op& op, const program::Effects& effects) {
  // An absolute end, so that what the executor does around it is not added to it.
  const auto end = Deadline::after(length_of_(op)).point();
  for (const Value& value : effects.mutates)
    if (!is_number(value)) values_.at(value)[0] += 1.0F;
  for (const Value& value : effects.kills) drop(value);
  for (const Value& value : effects.defines)
    if (!is_number(value)) create(value);
  std::this_thread::sleep_until(end);
}

Buffer SyntheticWorkspace::tied_part(int unit) { return buffer(final_grad(step_, unit)); }

Buffer SyntheticWorkspace::own_part(int segment) {
  const Buffer whole = buffer({ValueKind::kParam, segment});
  const std::int64_t width = count_of_({ValueKind::kGradShard, segment});
  return whole.slice((step_.is_experts(segment) ? expert_shard_ : shard_index_) * width, width);
}

StepSums SyntheticWorkspace::sums() {
  StepSums sums;
  for (const auto& [value, memory] : values_)
    if (value.kind == ValueKind::kAccGrad || value.kind == ValueKind::kGradShard)
      sums.squares.add(memory[0]);
  // As if each of a rank's experts had met one token.
  sums.expert_tokens.assign(static_cast<std::size_t>(step_.num_routed()), 1);
  if (sums.expert_tokens.empty()) return sums;
  sums.aux_loss.add(0.5);
  sums.z_loss.add(0.25);
  return sums;
}

}  // namespace lockstep::exec

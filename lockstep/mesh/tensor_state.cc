#include "lockstep/mesh/tensor_state.h"

#include <optional>
#include <string_view>

#include "lockstep/base/check.h"
#include "lockstep/base/units.h"

namespace lockstep::mesh {
namespace {

using Kind = AxisState::Kind;

std::string_view to_text(Kind kind) {
  switch (kind) {
    case Kind::kReplicated:
      return "replicated";
    case Kind::kSharded:
      return "sharded";
    case Kind::kPartial:
      return "partial";
  }
  LS_CHECK(false, "kind ", static_cast<int>(kind));
}

std::string_view way_out(Kind from, Kind needed) {
  if (from == Kind::kSharded) return "all_gather makes a sharded tensor replicated";
  if (from == Kind::kReplicated && needed == Kind::kSharded)
    return "slice makes a replicated tensor sharded";
  if (from == Kind::kReplicated) return "it is already summed; another reduction would count twice";
  return "all_reduce makes a partial tensor replicated, reduce_scatter makes it sharded";
}

Error wrong_state(std::string_view verb, Axis axis, const std::string& needs, AxisState state,
                  std::string_view help) {
  const std::string name(to_text(axis));
  return {Code::kWrongTensorState,
          std::string(verb) + " over " + name + " needs a tensor that is " + needs + " on " + name +
              ", but it is " + to_text(state),
          std::string(help)};
}

struct Transition {
  std::string_view verb;
  Kind needs;
  AxisState result;
};

Result<TensorState> apply(const TensorState& before, AxisSet axes, const Transition& transition) {
  const auto& [verb, needs, result] = transition;
  LS_CHECK(!axes.empty(), verb, " over no axis");
  LS_CHECK(result.dim >= 0, verb, " to dim ", result.dim);
  std::optional<std::int32_t> dim;  // that the earlier axes shard
  for (int i = 0; i < kNumAxes; ++i) {
    const Axis axis = static_cast<Axis>(i);
    if (!axes.has(axis)) continue;
    const AxisState state = before.on(axis);
    if (state.kind != needs)
      return wrong_state(verb, axis, std::string(to_text(needs)), state,
                         way_out(state.kind, needs));
    if (needs != Kind::kSharded) continue;
    if (dim && *dim != state.dim)
      return wrong_state(verb, axis, to_text(AxisState::sharded(*dim)), state,
                         "several axes at once must shard the same dim");
    if (result == state)
      return wrong_state(verb, axis, "sharded along another dim", state,
                         "it already is what was asked for");
    dim = state.dim;
  }
  return before.with(axes, result);
}

}  // namespace

std::string to_text(AxisState state) {
  if (state.kind == Kind::kSharded) return strf("sharded(%d)", static_cast<int>(state.dim));
  return std::string(to_text(state.kind));
}

TensorState TensorState::with(AxisSet axes, AxisState state) const {
  TensorState changed = *this;
  for (int i = 0; i < kNumAxes; ++i)
    if (axes.has(static_cast<Axis>(i))) changed.states_.at(static_cast<std::size_t>(i)) = state;
  return changed;
}

Result<TensorState> TensorState::all_gather(AxisSet axes) const {
  return apply(*this, axes, {"all_gather", Kind::kSharded, AxisState::replicated()});
}

Result<TensorState> TensorState::reduce_scatter(AxisSet axes, std::int32_t dim) const {
  return apply(*this, axes, {"reduce_scatter", Kind::kPartial, AxisState::sharded(dim)});
}

Result<TensorState> TensorState::all_reduce(AxisSet axes) const {
  return apply(*this, axes, {"all_reduce", Kind::kPartial, AxisState::replicated()});
}

Result<TensorState> TensorState::all_to_all(AxisSet axes, std::int32_t dim) const {
  return apply(*this, axes, {"all_to_all", Kind::kSharded, AxisState::sharded(dim)});
}

Result<TensorState> TensorState::slice(AxisSet axes, std::int32_t dim) const {
  return apply(*this, axes, {"slice", Kind::kReplicated, AxisState::sharded(dim)});
}

std::string to_text(const TensorState& state) {
  std::string text;
  for (int i = 0; i < kNumAxes; ++i) {
    const Axis axis = static_cast<Axis>(i);
    if (state.on(axis) == AxisState::replicated()) continue;
    text.append(text.empty() ? "" : ", ").append(to_text(axis)).append(": ");
    text += to_text(state.on(axis));
  }
  return text.empty() ? "replicated" : text;
}

}  // namespace lockstep::mesh

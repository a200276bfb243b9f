#include "lockstep/train/state_digest.h"

#include <bit>
#include <string_view>
#include <type_traits>

#include "lockstep/base/check.h"
#include "lockstep/base/hash.h"

namespace lockstep::train {
namespace {

using runtime::StateRole;

// A bijection in which every bit of the input reaches every bit of the output (the finisher of
// SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
std::uint64_t mix(std::uint64_t word) {
  word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9u;
  word = (word ^ word >> 27) * 0x94D049BB133111EBu;
  return word ^ word >> 31;
}

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;  // odd: no two places get the same

template <class Element>
std::uint64_t sum_of(const Element* elements, std::int64_t count, std::uint64_t key,
                     std::int64_t first) {
  using Bits = std::conditional_t<sizeof(Element) == 8, std::uint64_t, std::uint32_t>;
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t place = key + kGolden * static_cast<std::uint64_t>(first + i);
    sum += mix(mix(place) ^ std::bit_cast<Bits>(elements[i]));
  }
  return sum;
}

constexpr std::string_view kRoleWords[] = {"parameter", "first moment", "second moment"};

}  // namespace

std::uint64_t own_digest(const model::Model& model, const program::StepShape& step,
                         const runtime::Place& place, const runtime::TensorWorkspace& workspace) {
  const bool brings = step.zero == 0 ? place.data_index() == 0 : place.replica == 0;
  std::uint64_t sum = 0;
  for (int unit = 0; unit < step.units() && brings; ++unit) {
    if (!step.holds(place.coord, unit)) continue;
    const model::FlatRange own = workspace.own_range(unit);
    const auto runs = model::flat_runs(model.unit(unit), workspace.layout(unit), place.tensor, own);
    for (const StateRole role :
         {StateRole::kParameter, StateRole::kFirstMoment, StateRole::kSecondMoment}) {
      const at::Tensor state = workspace.state(unit, role).cpu().contiguous();
      for (const model::FlatRun& run : runs) {
        const model::Param& param = model.unit(unit).params[static_cast<std::size_t>(run.param)];
        if (param.sharded.empty() && place.tensor.coord > 0) continue;  // the first has it too
        const std::uint64_t key = xxh3_64(
            join_parts(unit, " ", param.name, " ", kRoleWords[static_cast<std::size_t>(role)]));
        const std::int64_t at = run.at - own.begin;
        sum += state.scalar_type() == at::kDouble
                   ? sum_of(state.const_data_ptr<double>() + at, run.length, key, run.element)
                   : sum_of(state.const_data_ptr<float>() + at, run.length, key, run.element);
      }
    }
  }
  return sum;
}

std::uint64_t whole_digest(std::uint64_t sum, std::int64_t updates) {
  return mix(sum + kGolden * static_cast<std::uint64_t>(updates));
}

}  // namespace lockstep::train

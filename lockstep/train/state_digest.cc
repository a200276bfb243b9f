// A digest of a job's whole state that no layout changes and that nobody gathers the state for.
// Every element of every parameter, moment and selection bias is hashed with its place in the whole
// tensor, the hashes are added modulo 2^64, and ranks add up their sums; each element counts once,
// on one of the ranks that hold it. A sum does not depend on the order, so neither does the digest
// on who holds what. It finds accidents (two states that differ collide by chance once in 2^64),
// not forgeries.
#include <bit>
#include <string_view>
#include <type_traits>

#include "lockstep/base/check.h"
#include "lockstep/base/hash.h"
#include "lockstep/train/session.h"

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

// This rank's summand. Of bf16 runs the master weights count.
std::uint64_t own_digest(Session& session) {
  const model::Model& model = session.job().model;
  const runtime::Place& place = session.place();
  const runtime::TensorWorkspace& workspace = session.workspace();
  std::uint64_t sum = 0;
  for (const int segment : session.own_segments()) {
    if (!workspace.counts(segment)) continue;
    const model::FlatRange own = workspace.own_range(segment);
    const model::Unit& unit = model.unit(segment);
    const auto runs = model::flat_runs(unit, workspace.layout(segment), place.tensor, own);
    for (const StateRole role :
         {StateRole::kParameter, StateRole::kFirstMoment, StateRole::kSecondMoment}) {
      const at::Tensor state = workspace.state(segment, role).cpu().contiguous();
      for (const model::FlatRun& run : runs) {
        const model::Param& param = unit.params[run.param];
        if (model::tensor_shard(param, place.tensor).is_copy) continue;
        const std::uint64_t key = xxh3_64(join_parts(model.unit_of(segment), " ", param.name, " ",
                                                     kRoleWords[static_cast<std::size_t>(role)]));
        const std::int64_t at = run.at - own.begin;
        sum += state.scalar_type() == at::kDouble
                   ? sum_of(state.const_data_ptr<double>() + at, run.length, key, run.element)
                   : sum_of(state.const_data_ptr<float>() + at, run.length, key, run.element);
      }
    }
  }
  return sum;
}

// All ranks have all of them.
std::uint64_t bias_digest(const std::vector<float>& bias) {
  return sum_of(bias.data(), std::ssize(bias), xxh3_64("selection biases"), 0);
}

}  // namespace

std::uint64_t Session::state_digest() {
  const std::uint64_t own = own_digest(*this), biases = bias_digest(workspace_->router_bias());
  // In halves, whose sums over a world do not overflow.
  std::int64_t halves[] = {
      static_cast<std::int64_t>(own & 0xFFFFFFFF), static_cast<std::int64_t>(own >> 32),
      static_cast<std::int64_t>(biases & 0xFFFFFFFF), static_cast<std::int64_t>(biases >> 32)};
  const std::int64_t low = halves[2], high = halves[3], ranks = job_.mesh.world();
  for (comm::Communicator* group : groups_->on_host(program::CommGroup::kDataTensorPipeline))
    group->all_reduce({halves, 4, DType::kI64, {}}, Deadline::after(op_deadline_)).wait();
  LS_CHECK(halves[2] == low * ranks && halves[3] == high * ranks,
           "selection biases are not the same on all ranks");
  const std::uint64_t sum = static_cast<std::uint64_t>(halves[0]) +
                            (static_cast<std::uint64_t>(halves[1]) << 32) + biases;
  return mix(sum + kGolden * static_cast<std::uint64_t>(workspace_->updates()));
}

}  // namespace lockstep::train

#include "lockstep/train/checkpoint_state.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/slice.h"

namespace lockstep::train {
namespace {

// Part `index` of `parts` nearly equal ones.
model::FlatRange share_of(const model::FlatRange& range, std::int64_t parts, std::int64_t index) {
  return {range.begin + range.size() * index / parts,
          range.begin + range.size() * (index + 1) / parts};
}

constexpr const char* kNoiseSteps = "noise_steps";
constexpr const char* kNoiseGradient = "noise_gradient";
constexpr const char* kNoiseVariance = "noise_variance";

// Of a whole text, as strf("%a") writes it.
std::optional<double> parse_hex_real(std::string_view text) {
  const bool is_negative = text.starts_with('-');
  if (is_negative) text.remove_prefix(1);
  if (!text.starts_with("0x")) return std::nullopt;
  text.remove_prefix(2);
  const auto value = number_in<double>(text, std::chars_format::hex);
  return value && is_negative ? -*value : value;
}

std::optional<NoiseScale::Averages> noise_averages(const checkpoint::Facts& facts) {
  if (facts.size() != 3 || facts[0].first != kNoiseSteps || facts[1].first != kNoiseGradient ||
      facts[2].first != kNoiseVariance)
    return std::nullopt;
  NoiseScale::Averages read;
  const auto seen = number_in<decltype(read.seen)>(facts[0].second);
  const auto gradient = parse_hex_real(facts[1].second), variance = parse_hex_real(facts[2].second);
  if (!seen || *seen < 0 || !gradient || !variance) return std::nullopt;
  read.seen = *seen;
  read.gradient = *gradient;
  read.variance = *variance;
  return read;
}

// All ranks have all of them, so one of the world saves them.
void add_biases(const model::Model& model, std::vector<OwnSlice>& slices) {
  std::int64_t at = 0;
  for (checkpoint::Slice& slice : checkpoint::untrained_slices(model)) {
    const std::int64_t size = slice.size();
    slices.push_back(
        {.typed = {std::move(slice), files::ElementType::kF32}, .at = at, .is_bias = true});
    at += size;
  }
}

}  // namespace

at::Tensor elements_of(const OwnSlice& slice, Session& session) {
  const std::int64_t size = slice.typed.slice.size();
  runtime::TensorWorkspace& workspace = session.workspace();
  if (!slice.is_bias) return workspace.state(slice.segment, slice.role).narrow(0, slice.at, size);
  return workspace.bias_state().narrow(0, slice.at, size);
}

std::vector<OwnSlice> own_slices(const Job& job, Session& session) {
  const runtime::TensorWorkspace& workspace = session.workspace();
  const runtime::Place& place = session.place();
  const bool all_alike = job.program.step.zero == 0;
  const auto type = files::element_type(wide_type(job.workspace.unit.dtype));
  std::vector<OwnSlice> slices;
  for (const int segment : session.own_segments()) {
    const model::FlatRange own = workspace.own_range(segment);
    const runtime::Share share = workspace.share(segment);
    const std::int64_t replicas =
        job.mesh.degree(job.model.is_experts(segment) ? mesh::Axis::kExpertDataReplicate
                                                      : mesh::Axis::kDataReplicate);
    const std::int64_t writers = all_alike ? replicas * share.shards : replicas;
    const std::int64_t writer = all_alike ? share.index() : share.replica;
    for (const auto& [role, saved_as] : kSavedRoles)
      for (checkpoint::UnitSlice& part :
           checkpoint::unit_slices(job.model, segment, workspace.layout(segment), place.tensor,
                                   share_of(own, writers, writer), saved_as))
        if (!part.is_copy)
          slices.push_back({{std::move(part.slice), type}, segment, role, part.at - own.begin});
  }
  if (place.coord.value == 0 && place.data_index() == 0 && place.tensor.coord == 0)
    add_biases(job.model, slices);
  std::ranges::sort(slices, {}, [](const OwnSlice& own) { return entry_name(own.typed.slice); });
  return slices;
}

checkpoint::Facts running_state(Session& session) {
  if (session.noise_scale() == nullptr) return {};
  const NoiseScale::Averages& now = session.noise_scale()->averages();
  return {{kNoiseSteps, std::to_string(now.seen)},
          {kNoiseGradient, strf("%a", now.gradient)},
          {kNoiseVariance, strf("%a", now.variance)}};
}

Result<void> set_running_state(Session& session, const checkpoint::Facts& facts) {
  if (facts.empty()) return {};
  const auto noise = noise_averages(facts);
  if (!noise) {
    std::string told;
    for (const auto& [name, value] : facts)
      told += join_parts(told.empty() ? "" : ", ", name, " = ", value);
    return Error{Code::kOtherCheckpoint,
                 join_parts("its state is ", told, ", where this version knows ", kNoiseSteps, ", ",
                            kNoiseGradient, " and ", kNoiseVariance),
                 "go on with the version that saved it, or begin a training from its weights"};
  }
  if (session.noise_scale() != nullptr) session.noise_scale()->set_averages(*noise);
  return {};
}

}  // namespace lockstep::train

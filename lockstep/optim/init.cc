#include "lockstep/optim/init.h"

#include <algorithm>

#include "lockstep/base/check.h"
#include "lockstep/base/random.h"

namespace lockstep::optim {
namespace {

template <class Element>
Element rounded(double value) {
  return static_cast<Element>(value);
}
template <>
at::BFloat16 rounded(double value) {
  return static_cast<at::BFloat16>(static_cast<float>(value));
}

template <class Element>
void write_param(const arch::Param& param, const std::string& name, std::uint64_t seed,
                 std::int64_t begin, std::int64_t end, Draws* draws, Element* out) {
  switch (param.init.kind) {
    case arch::InitKind::kOnes:
      std::fill(out, out + (end - begin), rounded<Element>(1));
      return;
    case arch::InitKind::kZeros:
      std::fill(out, out + (end - begin), rounded<Element>(0));
      return;
    case arch::InitKind::kNormal:
      break;
  }
  const auto fill = [&](auto normal) {
    for (std::int64_t i = begin; i < end; ++i)
      out[i - begin] = rounded<Element>(param.init.std * normal(static_cast<std::uint64_t>(i)));
  };
  if (draws == nullptr) {
    const RandomStream stream(seed, name);
    return fill([&](std::uint64_t i) { return stream.normal(i); });
  }
  const auto known = draws->normals(seed, name, param.numel());
  fill([&](std::uint64_t i) { return (*known)[i]; });
}

template <class Element>
void write(const arch::Model& model, int position, const arch::FlatLayout& layout,
           arch::TensorPlace rank, arch::FlatRange range, std::uint64_t seed, Draws* draws,
           Element* out) {
  std::fill(out, out + range.size(), rounded<Element>(0));
  const arch::Unit& unit = model.unit(position);
  for (const arch::FlatRun& run : arch::flat_runs(unit, layout, rank, range)) {
    const arch::Param& own = unit.params[static_cast<std::size_t>(run.param)];
    // The embedding's table is the first parameter of the first unit.
    const arch::Param& source = own.tied ? model.unit(0).params.front() : own;
    const int layer = own.tied ? arch::Model::layer(0) : arch::Model::layer(position);
    write_param(source, arch::name_at(source.name, layer), seed, run.element,
                run.element + run.length, draws, out + (run.at - range.begin));
  }
}

}  // namespace

std::shared_ptr<const std::vector<double>> Draws::normals(std::uint64_t seed,
                                                          const std::string& name,
                                                          std::int64_t count) {
  const std::lock_guard lock(mutex_);
  auto& known = known_[{seed, name}];
  if (!known) {
    std::vector<double> drawn(static_cast<std::size_t>(count));
    const RandomStream stream(seed, name);
    for (std::size_t i = 0; i < drawn.size(); ++i) drawn[i] = stream.normal(i);
    known = std::make_shared<const std::vector<double>>(std::move(drawn));
  }
  LS_CHECK(known->size() == static_cast<std::size_t>(count), count, " draws of ", name);
  return known;
}

void write_initial(const arch::Model& model, int position, const arch::FlatLayout& layout,
                   arch::FlatRange range, std::uint64_t seed, const at::Tensor& out,
                   arch::TensorPlace place, Draws* draws) {
  LS_CHECK(out.numel() == range.size() && out.is_contiguous() && out.is_cpu(),
           "initial values for ", range.size(), " elements into ", out.numel());
  if (out.scalar_type() == at::kDouble)
    write(model, position, layout, place, range, seed, draws, out.mutable_data_ptr<double>());
  else if (out.scalar_type() == at::kBFloat16)
    write(model, position, layout, place, range, seed, draws, out.mutable_data_ptr<at::BFloat16>());
  else
    write(model, position, layout, place, range, seed, draws, out.mutable_data_ptr<float>());
}

}  // namespace lockstep::optim

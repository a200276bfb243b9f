#include "lockstep/model/arch.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/enum_names.h"
#include "lockstep/model/unit_builder.h"

namespace lockstep::model {
namespace {

constexpr EnumNames<UnitKind, 4> kUnitKinds = {{"embed", "block", "mtp", "head"}};
constexpr EnumNames<Role, 8> kParamRoles = {
    {"embedding", "norm", "attention", "mlp", "router", "expert", "shared", "head"}};

}  // namespace

std::int64_t Param::numel() const {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product *= size;
  return product;
}

bool Unit::has_experts() const {
  return std::ranges::any_of(params, [](const Param& param) { return param.experts > 0; });
}

std::vector<int> Model::segments() const {
  std::vector<int> all;
  for (int position = 0; position < num_units(); ++position) {
    all.push_back(position);
    if (unit(position).has_experts()) all.push_back(experts_of(position, num_units()));
  }
  return all;
}

ParamCount& ParamCount::operator+=(const ParamCount& other) {
  total += other.total;
  active += other.active;
  tensor += other.tensor;
  expert += other.expert;
  replicated += other.replicated;
  return *this;
}

ParamCount operator*(const ParamCount& one, std::int64_t times) {
  return {one.total * times, one.active * times, one.tensor * times, one.expert * times,
          one.replicated * times};
}

Result<Model> describe(const ModelConfig& config) {
  std::vector<Error> found = problems(config);
  if (!found.empty()) return std::move(found.front());
  return config.family == Family::kGpt2 ? describe_gpt2(config) : describe_rotary(config);
}

ParamCount count(const Unit& unit) {
  ParamCount sum;
  for (const Param& param : unit.params) {
    if (param.tied) continue;
    const std::int64_t numel = param.numel();
    sum.total += numel;
    sum.active += param.experts > 0 ? numel / param.experts * param.active : numel;
    if (param.experts > 0)
      sum.expert += numel;
    else if (!param.sharded.empty())
      sum.tensor += numel;
    else
      sum.replicated += numel;
  }
  return sum;
}

ParamCount count(const Model& model) {
  std::vector<std::int64_t> times(model.distinct.size(), 0);
  for (const int index : model.order) ++times[index];
  ParamCount sum;
  for (std::size_t i = 0; i < times.size(); ++i) sum += count(model.distinct[i]) * times[i];
  return sum;
}

std::string name_at(const std::string& pattern, std::int64_t layer) {
  std::string name = pattern;
  for (std::size_t at; (at = name.find("{i}")) != std::string::npos;)
    name.replace(at, 3, std::to_string(layer));
  return name;
}

std::string_view to_text(UnitKind kind) { return kUnitKinds.name_of(kind); }
std::string_view to_text(Role role) { return kParamRoles.name_of(role); }

}  // namespace lockstep::model

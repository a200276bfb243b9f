#include "cli/convert/check.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "cli/engine.h"
#include "lockstep/base/random.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/slice.h"
#include "lockstep/files/durable.h"
#include "lockstep/files/elements.h"
#include "lockstep/hf/export.h"
#include "lockstep/model/arch.h"

namespace lockstep::cli {

extern const char* const kUnitOutputsScript;  // unit_outputs.py, by CMake

namespace {

constexpr std::int64_t kTokens = 64;

// A checkpoint's parameters as a directory of `stored` holds them, in f32.
class StoredParams final : public hf::ParamSource {
 public:
  StoredParams(hf::CheckpointSource& source, const model::Model& model, DType stored)
      : source_(source), stored_(stored) {
    for (const checkpoint::Slice& slice : checkpoint::untrained_slices(model))
      kept_.insert(slice.tensor);
  }
  DType type() const override { return DType::kF32; }
  Result<void> read(const std::string& name, const std::vector<std::int64_t>& shape,
                    std::int64_t first, std::span<std::byte> out) override {
    const std::size_t count = out.size() / size_of(type());
    // What is not trained stays f32 in every directory.
    const DType stored = kept_.contains(name) ? DType::kF32 : stored_;
    std::vector<std::byte> read(count * size_of(source_.type()));
    std::vector<std::byte> rounded(count * size_of(stored));
    LS_TRY(source_.read(name, shape, first, read));
    files::convert(read, source_.type(), rounded, stored);
    files::convert(rounded, stored, out, type());
    return {};
  }

 private:
  hf::CheckpointSource& source_;
  const DType stored_;
  std::set<std::string> kept_;
};

Result<std::vector<float>> floats_of(const Json& answer) {
  const Json* const hex = answer.find("f32");
  const auto broken = [] {
    return Error{Code::kUnsuitableEnvironment, "Python's answer is no list of f32", ""};
  };
  if (hex == nullptr || !hex->is_text() || hex->as_text().size() % 8 != 0) return broken();
  const std::string& text = hex->as_text();
  std::vector<std::uint8_t> bytes(text.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char* const digits = text.data() + 2 * i;
    if (std::from_chars(digits, digits + 2, bytes[i], 16).ptr != digits + 2) return broken();
  }
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), bytes.size());
  return floats;
}

std::vector<std::int64_t> drawn_tokens(const model::ModelConfig& model) {
  const RandomStream stream(0, "convert.check");
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < std::min(kTokens, model.max_positions); ++i)
    tokens.push_back(static_cast<std::int64_t>(stream.below(model.vocab, i)));
  return tokens;
}

std::string unit_name(int unit, int units) {
  if (unit == 0) return "embedding";
  return unit + 1 == units ? "logits" : join_parts("blocks.", unit - 1);
}

// Norm of a - b over that of a.
template <class Number>
double distance(std::span<const double> a, std::span<const Number> b) {
  double of_a = 0, of_difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    of_a += a[i] * a[i];
    of_difference += (a[i] - b[i]) * (a[i] - b[i]);
  }
  return of_difference == 0 ? 0 : std::sqrt(of_difference / of_a);
}

// NaN is the greatest of all.
void raise(double& most, double to) {
  if (!(to <= most)) most = to;
}

struct TheirOutputs {
  std::vector<std::vector<float>> units;
  std::string versions;
};
Result<TheirOutputs> their_outputs(Helper& transformers, const std::string& directory,
                                   std::span<const std::int64_t> tokens, std::size_t units) {
  const Json ran =
      LS_TRY(transformers.ask("outputs", Json::object({{"path", directory},  //
                                                       {"tokens", Json::list(tokens)}})));
  const Json* const count = ran.find("units");
  if (count == nullptr || !count->is_int() || std::cmp_not_equal(count->as_int(), units))
    return Error{Code::kUnsuitableEnvironment,
                 join_parts("transformers' model of `", directory, "` has other layers than ",
                            units - 2, " blocks"),
                 ""};
  TheirOutputs made;
  made.versions = ran.find("versions")->as_text();
  for (std::size_t unit = 0; unit < units; ++unit) {
    const Json answer = LS_TRY(transformers.ask("unit", Json(unit)));
    made.units.push_back(LS_TRY(floats_of(answer)));
  }
  return made;
}

}  // namespace

double difference_bound(double rounding) {
  constexpr double kRoundoff = 0x1p-24, kMost = 1e-4;
  return 8 * std::min(rounding, kMost) + 4 * kRoundoff;
}

UnitDifference compare_rows(std::span<const double> exact, std::span<const double> rounded,
                            std::span<const float> theirs, std::int64_t tokens) {
  UnitDifference made;
  const std::size_t columns = exact.size() / static_cast<std::size_t>(tokens);
  const auto each = [&](auto measure) {
    for (std::size_t at = 0; at < exact.size(); at += columns)
      measure(exact.subspan(at, columns), at);
  };
  each([&](std::span<const double> row, std::size_t at) {
    raise(made.rounding, distance(row, rounded.subspan(at, columns)));
  });
  each([&](std::span<const double> row, std::size_t at) {
    const double by = distance(row, theirs.subspan(at, columns));
    raise(made.theirs, by);
    if (!(by <= difference_bound(made.rounding))) ++made.tokens;
  });
  return made;
}

const UnitDifference* OutputCheck::different() const {
  const auto found =
      std::ranges::find_if(units, [](const UnitDifference& unit) { return unit.tokens > 0; });
  return found == units.end() ? nullptr : &*found;
}

std::string OutputCheck::told() const {
  const UnitDifference& last = units.back();
  if (const UnitDifference* const first = different())
    return strf(
        "transformers computes something else, first in %s: %lld of %lld tokens differ, by "
        "up to %.2g of their row's norm, where f32 rounds by %.2g; logits by %.2g",
        first->unit.c_str(), static_cast<long long>(first->tokens), static_cast<long long>(tokens),
        first->theirs, first->rounding, last.theirs);
  return strf(
      "logits of %lld tokens are those of %s within %.2g of their row's norm; f32 rounds "
      "by %.2g",
      static_cast<long long>(tokens), versions.c_str(), last.theirs, last.rounding);
}

Json OutputCheck::json() const {
  const UnitDifference* const first = different();
  return Json::object({{"versions", versions},
                       {"tokens", tokens},
                       {"first_different", first == nullptr ? Json() : Json(first->unit)},
                       {"units", Json::list(units, [](const UnitDifference& unit) {
                          return Json::object({{"unit", unit.unit},
                                               {"difference", unit.theirs},
                                               {"bound", difference_bound(unit.rounding)},
                                               {"tokens", unit.tokens}});
                        })}});
}

Result<Helper> start_check(const std::string& name) {
  LS_TRY(load_engine("convert --check"));
  return Helper::start({kUnitOutputsScript, "transformers",
                        "it needs torch, too; without --check nothing is compared"},
                       name);
}

Result<OutputCheck> check_outputs(Helper& transformers, const std::string& directory,
                                  const std::string& checkpoint, DType stored) {
  const Engine* const engine = LS_TRY(load_engine("convert --check"));
  auto opened = LS_TRY(checkpoint::open_at(files::real_disk(), checkpoint));
  auto source = LS_TRY(hf::CheckpointSource::open(std::move(opened)));
  const model::Model model = *model::describe(source.model());
  const auto tokens = drawn_tokens(model.config);
  const auto units = static_cast<std::size_t>(model.num_units());
  const auto theirs = LS_TRY(their_outputs(transformers, directory, tokens, units));
  StoredParams params(source, model, stored);
  const auto exact = LS_TRY(engine->unit_outputs(model, params, tokens, DType::kF64));
  const auto rounded = LS_TRY(engine->unit_outputs(model, params, tokens, DType::kF32));
  OutputCheck made;
  made.tokens = std::ssize(tokens);
  made.versions = theirs.versions;
  for (std::size_t unit = 0; unit < units; ++unit) {
    if (theirs.units[unit].size() != exact[unit].size())
      return Error{
          Code::kUnsuitableEnvironment,
          join_parts("transformers' ", unit_name(static_cast<int>(unit), model.num_units()),
                     " has ", theirs.units[unit].size(), " elements for ", exact[unit].size()),
          ""};
    made.units.push_back(compare_rows(exact[unit], rounded[unit], theirs.units[unit], made.tokens));
    made.units.back().unit = unit_name(static_cast<int>(unit), model.num_units());
  }
  return made;
}

}  // namespace lockstep::cli

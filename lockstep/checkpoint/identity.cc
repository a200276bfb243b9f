#include "lockstep/checkpoint/identity.h"

#include <algorithm>
#include <cstdlib>

#include "lockstep/base/check.h"
#include "lockstep/checkpoint/slice.h"
#include "lockstep/files/safetensors.h"
#include "lockstep/model/user_model.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::size_t kMostShown = 5;

const std::string& value_in(const Facts& facts, const std::string& key) {
  static const std::string kAbsent = "(absent)";
  const auto found = std::ranges::find(facts, key, &std::pair<std::string, std::string>::first);
  return found == facts.end() ? kAbsent : found->second;
}

// The same text, or the same number: earlier versions wrote more digits of one.
bool is_same(const std::string& a, const std::string& b) {
  char *end_a = nullptr, *end_b = nullptr;
  const double x = std::strtod(a.c_str(), &end_a), y = std::strtod(b.c_str(), &end_b);
  return a == b || (x == y && !a.empty() && !b.empty() && *end_a == 0 && *end_b == 0);
}

}  // namespace

Result<void> check_same(std::string_view what, const std::string& path, const Facts& there,
                        const Facts& here) {
  std::vector<std::string> keys;
  for (const Facts* facts : {&there, &here})
    for (const auto& [key, value] : *facts)
      if (!is_same(value_in(there, key), value_in(here, key)) &&
          std::ranges::find(keys, key) == keys.end())
        keys.push_back(key);
  if (keys.empty()) return {};
  std::string text;
  for (std::size_t i = 0; i < std::min(keys.size(), kMostShown); ++i)
    text += join_parts(i == 0 ? "" : "; ", keys[i], " is ", value_in(there, keys[i]), " there and ",
                       value_in(here, keys[i]), " here");
  if (keys.size() > kMostShown) text += join_parts("; and ", keys.size() - kMostShown, " more");
  return Error{
      Code::kOtherCheckpoint,
      join_parts("`", path, "` is of another ", what, ": ", text, " (digest ",
                 to_hex(digest_of(there)), " there, ", to_hex(digest_of(here)), " here)"),
      join_parts("use the ", what, " that the checkpoint was saved with, or another checkpoint")};
}

Result<void> check_holds_model(const Manifest& manifest, const std::string& path) {
  const auto refused = [&](const std::string& why) {
    return Error{Code::kBadManifest, "`" + path + "` " + why, "use another checkpoint"};
  };
  const Result<model::ModelConfig> config = model::model_of(manifest.model);
  if (!config.ok()) return refused("names no model that is known here: " + config.error().message);
  if (std::cmp_greater(config->layers, manifest.tensors.size()))
    return refused(join_parts("holds ", manifest.tensors.size(), " tensors of a model of ",
                              config->layers, " layers"));
  const model::Model model = model::describe(*config).value();
  for (const Role role : kAllRoles) {
    if (role != Role::kWeight && manifest.config.empty()) continue;
    for (const Slice& wanted : model_slices(model, role)) {
      const TensorRecord* const found = manifest.find(wanted.tensor, role);
      if (found == nullptr || found->shape != wanted.shape)
        return refused(join_parts("has no ", to_text(role), " of tensor `", wanted.tensor,
                                  "` of shape ", files::shape_text(wanted.shape)));
    }
  }
  return {};
}

}  // namespace lockstep::checkpoint

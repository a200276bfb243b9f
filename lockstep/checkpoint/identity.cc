#include "lockstep/checkpoint/identity.h"

#include <algorithm>

#include "lockstep/base/check.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::size_t kMostShown = 5;

const std::string& value_in(const Facts& facts, const std::string& key) {
  static const std::string kAbsent = "(absent)";
  const auto found = std::ranges::find(facts, key, &std::pair<std::string, std::string>::first);
  return found == facts.end() ? kAbsent : found->second;
}

}  // namespace

Result<void> check_same(std::string_view what, const std::string& path, const Facts& there,
                        const Facts& here) {
  if (there == here) return {};
  std::vector<std::string> keys;
  for (const Facts* facts : {&there, &here})
    for (const auto& [key, value] : *facts)
      if (value_in(there, key) != value_in(here, key) && std::ranges::find(keys, key) == keys.end())
        keys.push_back(key);
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

}  // namespace lockstep::checkpoint

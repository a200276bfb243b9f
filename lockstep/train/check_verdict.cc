// Who is wrong, from what all ranks found.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/text.h"
#include "lockstep/train/state_check.h"

namespace lockstep::train {
namespace {

constexpr std::size_t kMostNamed = 4;  // of pieces

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    text += join_parts(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return text;
}

// One piece that holders disagree about.
std::string disagreement(const std::string& name,
                         const std::map<std::uint64_t, std::vector<int>>& by_digest) {
  std::size_t all = 0;
  const std::vector<int>* most = nullptr;
  for (const auto& [digest, ranks] : by_digest) {
    all += ranks.size();
    if (most == nullptr || ranks.size() > most->size()) most = &ranks;
  }
  std::vector<int> others, everyone;
  for (const auto& [digest, ranks] : by_digest) {
    everyone.insert(everyone.end(), ranks.begin(), ranks.end());
    if (&ranks != most) others.insert(others.end(), ranks.begin(), ranks.end());
  }
  std::ranges::sort(others);
  std::ranges::sort(everyone);
  if (2 * most->size() > all)
    return join_parts(name, " on ", ranks_text(others), " differs from that on ",
                      ranks_text(*most));
  return join_parts(name, " differs between ", ranks_text(everyone), ", and ", all,
                    " replicas cannot tell which is wrong");
}

}  // namespace

std::string verdict_on(const std::vector<CheckFindings>& ranks) {
  std::vector<std::string> said;
  std::map<std::uint64_t, std::map<std::uint64_t, std::vector<int>>> pieces;
  std::map<std::uint64_t, std::string> names;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    said.insert(said.end(), ranks[rank].faults.begin(), ranks[rank].faults.end());
    for (const PieceDigest& piece : ranks[rank].pieces) {
      pieces[piece.key][piece.digest].push_back(static_cast<int>(rank));
      names[piece.key] = piece.name;
    }
  }
  for (const auto& [key, by_digest] : pieces)
    if (by_digest.size() > 1) said.push_back(disagreement(names[key], by_digest));
  if (said.empty()) return "digests did not add up, though no two ranks' differ";
  std::string text;
  for (std::size_t i = 0; i < std::min(said.size(), kMostNamed); ++i)
    text += join_parts(i == 0 ? "" : "; ", said[i]);
  if (said.size() > kMostNamed) text += join_parts("; and ", said.size() - kMostNamed, " more");
  return text;
}

}  // namespace lockstep::train

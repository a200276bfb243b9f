// In which order ranks issue the operations of communicators. NCCL runs what is issued on one
// communicator in that order, and kernels of two may wait for each other's multiprocessors: two
// ranks that issue in two orders may deadlock on GPUs, whatever happened here. Knows no torch.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/check.h"

namespace lockstep::glass {

// Belongs to whoever locks it.
class Order {
 public:
  // `rank` issues its part of the operation `key`. Why that is refused, with all of the way.
  std::optional<std::string> issue(int rank, const std::string& key) {
    std::string& last = last_[rank];
    if (!last.empty()) {
      std::set<std::string> seen;
      std::vector<std::string> way;
      if (reaches(key, last, seen, way)) {
        std::string why = join_parts("order: rank ", rank, " issues ", last, " before ", key);
        for (auto step = way.rbegin(); step != way.rend(); ++step) why += "; " + *step;
        return why;
      }
      behind_[last][key] = rank;
    }
    last = key;
    return std::nullopt;
  }

 private:
  // Whether some rank issues `from` before ... before `to`; the way, last first.
  bool reaches(const std::string& from, const std::string& to, std::set<std::string>& seen,
               std::vector<std::string>& way) const {
    if (from == to) return true;
    if (!seen.insert(from).second) return false;
    const auto next = behind_.find(from);
    if (next == behind_.end()) return false;
    for (const auto& [key, rank] : next->second)
      if (reaches(key, to, seen, way)) {
        way.push_back(join_parts("rank ", rank, " issues ", from, " before ", key));
        return true;
      }
    return false;
  }

  std::map<std::string, std::map<std::string, int>> behind_;  // and the rank that has this order
  std::map<int, std::string> last_;                           // issued, by rank
};

}  // namespace lockstep::glass

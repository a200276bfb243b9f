#include "lockstep/schedule/catalog.h"

#include <string>

#include "lockstep/schedule/generators/generators.h"

namespace lockstep::schedule {
namespace {

constexpr std::string_view kGroups =
    "any chunks; N >= p microbatches to a group, the last one too, or one group; other sizes where "
    "no circle of waits arises";

constexpr CatalogRow kRows[] = {
    {"gpipe", gpipe, "all forward passes, then all backward passes", "chunks = 1, any microbatches",
     "(p-1)(tF+tB+tW)", "m", true},
    {"1f1b", one_f_one_b, "alternates forward and backward passes after a short warm-up",
     "chunks = 1, any microbatches", "(p-1)(tF+tB+tW)", "min(m, p-r)", true},
    {"eager-1f1b", eager_1f1b, "1f1b with twice the warm-up, which hides hops",
     "chunks = 1, any microbatches", "(p-1)(tF+tB+tW)", "min(m, 2(p-1-r)+1)"},
    {"interleaved", interleaved, "1f1b over several short stages per coordinate", kGroups,
     "(p-1)(tF+tB+tW)/v where each group has p or more", "min(m, ((v-1)N+2(p-1-r)+1)/v)", false,
     interleaved},
    {"looped-bfs", looped_bfs, "all microbatches through a chunk before the next chunk",
     "any chunks, any microbatches", "(p-1)(tF+tB+tW)/v where m >= p", "m"},
    {"zb-h1", zb_h1, "1f1b with weight gradients delayed into the bubble",
     "chunks = 1, any microbatches", "(p-1)(tF+max(0, tB-tW)) where m >= p", "min(m, p)"},
    {"interleaved-zb", interleaved_zb, "interleaved, with weight gradients delayed into the bubble",
     kGroups, "(p-1)(tF+max(0, tB-tW))/v where each group has p or more", "min(m, ((v-1)N+p)/v)",
     false, interleaved_zb},
    {"zbv", zbv, "a V of two chunks whose delayed weight gradients fill the bubble",
     "chunks = 2, any microbatches", "(p-1)tF/2 where tF = tB = tW, m >= 2p-1",
     "min(m, p) at most"},
    {"v-half", v_half, "a V of two chunks that holds half of what 1f1b holds",
     "chunks = 2, any microbatches", "(7p-4)tF/4, p odd 7(p-1)tF/4, where tF = tB = tW, m > p/2",
     "floor((p+2)/2) at most"},
    {"v-min", v_min, "a V of two chunks that holds a third of what 1f1b holds",
     "chunks = 2, any microbatches",
     "(4p-5)tF/2, 3 divides p (4p-3)tF/2, where tF = tB = tW, m > 1; else it grows with m",
     "floor((p+4)/3) at most"},
    {"dualpipe-v", dualpipe_v, "a V of two chunks filled from both ends; its F and B in turn",
     "chunks = 2, microbatches >= 2p", "(p-1)(tF+max(0, tB-tW))/2 where tB <= tF or tB <= tW",
     "p+1/2"},
};

}  // namespace

std::span<const CatalogRow> catalog() { return kRows; }

Result<CatalogRow> find(std::string_view name) {
  std::string names;
  for (const CatalogRow& row : kRows) {
    if (row.name == name) return row;
    names += (names.empty() ? "`" : ", `") + std::string(row.name) + "`";
  }
  return Error{Code::kUnknownChoice, "there is no schedule `" + std::string(name) + "`",
               "schedules are " + names};
}

}  // namespace lockstep::schedule

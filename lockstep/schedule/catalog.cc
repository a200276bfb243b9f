#include "lockstep/schedule/catalog.h"

#include <string>

#include "lockstep/schedule/generators/generators.h"

namespace lockstep::schedule {
namespace {

constexpr std::string_view kGroups =
    "any chunks; N >= p microbatches to a group, the last one too, or one group; other sizes where "
    "no circle of waits arises";

constexpr CatalogRow kRows[] = {
    {.name = "gpipe",
     .build = gpipe,
     .summary = "all forward passes, then all backward passes",
     .use = "To understand pipelines, or where one forward pass over everything is wanted before "
            "the first backward pass. Its bubble is that of 1f1b, its memory grows with the "
            "microbatches.",
     .source = "Huang et al. 2019, arXiv 1811.06965",
     .accepts = "chunks = 1, any microbatches",
     .bubble = "(p-1)(tF+tB+tW)",
     .peak = "m"},
    {.name = "1f1b",
     .build = one_f_one_b,
     .summary = "alternates forward and backward passes after a short warm-up",
     .use = "The one to start with: any number of microbatches, the least memory of those that "
            "keep the backward pass whole, the fewest hops.",
     .source = "PipeDream-Flush: Narayanan et al. 2021, arXiv 2006.09503; DAPPLE: Fan et al. "
               "2021, arXiv 2007.01045",
     .accepts = "chunks = 1, any microbatches",
     .bubble = "(p-1)(tF+tB+tW)",
     .peak = "min(m, p-r)"},
    {.name = "eager-1f1b",
     .build = eager_1f1b,
     .summary = "1f1b with twice the warm-up, which hides hops",
     .use =
         "Where hops between coordinates are slow and memory is left: it pays for hops while the "
         "pipeline fills and drains, 1f1b for nearly two with every microbatch.",
     .source = "Zhuang et al. 2023, arXiv 2211.05322",
     .accepts = "chunks = 1, any microbatches",
     .bubble = "(p-1)(tF+tB+tW)",
     .peak = "min(m, 2(p-1-r)+1)"},
    {.name = "interleaved",
     .build = interleaved,
     .summary = "1f1b over several short stages per coordinate",
     .use = "To divide the bubble of 1f1b by the chunks without taking the backward pass apart. "
            "Costs memory and as many times the hops; stops paying when a hop takes as long as a "
            "chunk.",
     .source = "Narayanan et al. 2021, arXiv 2104.04473; free groups: Llama 3, 2024, arXiv "
               "2407.21783",
     .accepts = kGroups,
     .chunks = 0,
     .bubble = "(p-1)(tF+tB+tW)/v where each group has p or more",
     .peak = "min(m, ((v-1)N+2(p-1-r)+1)/v)",
     .build_grouped = interleaved},
    {.name = "looped-bfs",
     .build = looped_bfs,
     .summary = "all microbatches through a chunk before the next chunk",
     .use = "With ZeRO-3: a chunk's parameters are gathered once for all microbatches. Holds the "
            "activations of all of them, so it wants few microbatches or recompute.",
     .source = "Lamy-Poirier 2023, arXiv 2211.05953",
     .accepts = "any chunks, any microbatches",
     .chunks = 0,
     .bubble = "(p-1)(tF+tB+tW)/v where m >= p",
     .peak = "m"},
    {.name = "zb-h1",
     .build = zb_h1,
     .summary = "1f1b with weight gradients delayed into the bubble",
     .use = "With F, I and W of equal length a third of the bubble of 1f1b, at its peak memory, "
            "which every coordinate then holds. The first to try once backward passes can be "
            "taken apart.",
     .source = "Qi et al. 2024, arXiv 2401.10241",
     .accepts = "chunks = 1, any microbatches",
     .bubble = "(p-1)(tF+max(0, tB-tW)) where m >= p",
     .peak = "min(m, p)"},
    {.name = "interleaved-zb",
     .build = interleaved_zb,
     .summary = "interleaved, with weight gradients delayed into the bubble",
     .use = "The smallest bubble where hops cost next to nothing. With slow hops and many chunks "
            "it is the first to lose: its warm-up is half that of interleaved.",
     .source = "PyTorch's interleaved zero bubble schedule, 2024, after arXiv 2401.10241",
     .accepts = kGroups,
     .chunks = 0,
     .bubble = "(p-1)(tF+max(0, tB-tW))/v where each group has p or more",
     .peak = "min(m, ((v-1)N+p)/v)",
     .build_grouped = interleaved_zb},
    {.name = "zbv",
     .build = zbv,
     .summary = "a V of two chunks whose delayed weight gradients fill the bubble",
     .use = "Half the bubble of zb-h1 at the same memory, with first and last stage on one "
            "coordinate, so that tied weights need no transfer. Made for F, I and W of equal "
            "length.",
     .source = "Qi et al. 2024, arXiv 2401.10241",
     .accepts = "chunks = 2, any microbatches",
     .chunks = 2,
     .bubble = "(p-1)tF/2 where tF = tB = tW, m >= 2p-1",
     .peak = "min(m, p) at most"},
    {.name = "v-half",
     .build = v_half,
     .summary = "a V of two chunks that holds half of what 1f1b holds",
     .use = "When 1f1b does not fit: half its activations, evenly over the coordinates, for a "
            "bubble that refilling brings to half of 1f1b's.",
     .source = "Qi et al. 2024, arXiv 2405.15362",
     .accepts = "chunks = 2, any microbatches",
     .chunks = 2,
     .bubble = "(7p-4)tF/4, p odd 7(p-1)tF/4, where tF = tB = tW, m > p/2",
     .peak = "floor((p+2)/2) at most"},
    {.name = "v-min",
     .build = v_min,
     .summary = "a V of two chunks that holds a third of what 1f1b holds",
     .use = "When nothing else fits, and only with F, I and W of equal length: otherwise it loses "
            "time with every microbatch.",
     .source = "Qi et al. 2024, arXiv 2405.15362",
     .accepts = "chunks = 2, any microbatches",
     .chunks = 2,
     .bubble =
         "(4p-5)tF/2, 3 divides p (4p-3)tF/2, where tF = tB = tW, m > 1; else it grows with m",
     .peak = "floor((p+4)/3) at most"},
    {.name = "dualpipe-v",
     .build = dualpipe_v,
     .summary = "a V of two chunks filled from both ends; its F and B in turn",
     .use = "For many microbatches and hops or expert exchanges worth hiding: a forward and a "
            "backward pass of different microbatches stand side by side all through the middle of "
            "a step.",
     .source = "DualPipe, DeepSeek-V3, 2024, arXiv 2412.19437; its V form: Sea AI Lab 2025",
     .accepts = "chunks = 2, microbatches >= 2p",
     .chunks = 2,
     .bubble = "(p-1)(tF+max(0, tB-tW))/2 where tB <= tF or tB <= tW",
     .peak = "p+1/2"},
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

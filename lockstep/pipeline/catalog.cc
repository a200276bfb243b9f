#include "lockstep/pipeline/catalog.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "lockstep/base/check.h"
#include "lockstep/pipeline/generators/generators.h"

namespace lockstep::pipeline {
namespace {

constexpr std::string_view kGroups =
    "any vpp; N >= p microbatches to a group, the last one too, or one group; other sizes where "
    "no circle of waits arises";

bool always(const PipelineTerms&) { return true; }
bool fills(const PipelineTerms& c) { return c.m >= c.p; }
bool in_groups(const PipelineTerms& c) { return std::fmod(c.m, c.p) == 0; }
bool is_even(const PipelineTerms& c) { return c.tb == c.tw; }

double fused(const PipelineTerms& c) { return (c.p - 1) * (c.tf + c.tb + c.tw) / c.v; }
double delayed(const PipelineTerms& c) {
  return (c.p - 1) * std::max(c.tf + std::max(0.0, c.tb - c.tw), c.tb) / c.v;
}
double all_held(const PipelineTerms& c, double) { return c.m; }
double filled_held(const PipelineTerms& c, double) { return std::min(c.m, c.p); }
// Of a schedule in groups: chunks ahead of the last, and warm-ups in it.
double grouped_held(const PipelineTerms& c, double warm) {
  return std::min(c.m, ((c.v - 1) * std::min(c.p, c.m) + warm) / c.v);
}

double zbv_idle(const PipelineTerms& c) {
  return std::max({(c.p - 1) * c.tb, (2 * c.p - 3) * c.tf - (c.p - 2) * c.tb,
                   2 * (c.p - 1) * c.tf - c.p * c.tb}) /
         2;
}

double v_half_idle(const PipelineTerms& c) {
  const double p = c.p;
  if (std::fmod(p, 2) != 0) return (p - 1) * std::max(2 * c.tf + 5 * c.tb, 4 * c.tf + 3 * c.tb) / 4;
  return std::max((2 * p + 2) * c.tf + (5 * p - 6) * c.tb,
                  (4 * p - 2) * c.tf + (3 * p - 2) * c.tb) /
         4;
}
double v_half_held(const PipelineTerms& c, double r) {
  const double ahead = std::fmod(c.p, 2) == 0 ? std::ceil(r / 2) : std::floor(r / 2);
  return std::min({c.m, std::floor((c.p + 2) / 2), (c.m + 1 + ahead) / 2});
}

// Every microbatch waits anew for what takes longer than its slot.
double v_min_idle(const PipelineTerms& c) {
  const double p = c.p, m = c.m, f = c.tf, over = c.tb - f, by3 = std::fmod(p, 3);
  const double even = (4 * p - (by3 == 0 ? 3 : 5)) * f;
  if (p == 2) return (3 * f + (over > 0 ? m * over : (3 - 2 * m) * over)) / 2;
  if (over <= 0) return (even + (2 * p + (by3 == 0 ? 4 : 1) - 4 * m) * over) / 2;
  if (by3 != 0) return (even + (2 * m + 2 * p - 5) * over) / 2;
  return (even + 2 * m * over + std::max((2 * p - 7) * over, (2 * p - 5) * over - f)) / 2;
}
double v_min_held(const PipelineTerms& c, double r) {
  const bool is_less = std::fmod(c.p, 3) == 2 && std::fmod(r, 3) == 0;
  return std::min(c.m, std::floor((c.p + 4) / 3) - (is_less ? 1 : 0));
}

double dualpipe_idle(const PipelineTerms& c) {
  const double others = c.p - 1;
  return std::max({others * c.tf, others * (2 * c.tf - c.tb - c.tw), others * c.tb - c.tf}) / 2;
}

constexpr CatalogRow kRows[] = {
    {.name = "gpipe",
     .build = gpipe,
     .summary = "all forward passes, then all backward passes",
     .use = "To understand pipelines, or where one forward pass over everything is wanted before "
            "the first backward pass. Its bubble is that of 1f1b, its memory grows with the "
            "microbatches.",
     .source = "Huang et al. 2019, arXiv 1811.06965",
     .accepts = "vpp = 1, any microbatches",
     .is_planned = true,
     .bubble = "(p-1)(tF+tB+tW)",
     .peak = "m",
     .idle = fused,
     .held = all_held,
     .holds = always},
    {.name = "1f1b",
     .build = one_f_one_b,
     .summary = "alternates forward and backward passes after a short warm-up",
     .use = "The one to start with: any number of microbatches, the least memory of those that "
            "keep the backward pass whole, the fewest P2P transfers.",
     .source = "PipeDream-Flush: Narayanan et al. 2021, arXiv 2006.09503; DAPPLE: Fan et al. "
               "2021, arXiv 2007.01045",
     .accepts = "vpp = 1, any microbatches",
     .is_planned = true,
     .bubble = "(p-1)(tF+tB+tW)",
     .peak = "min(m, p-r)",
     .idle = fused,
     .held = [](const PipelineTerms& c, double r) { return std::min(c.m, c.p - r); },
     .holds = always},
    {.name = "eager-1f1b",
     .build = eager_1f1b,
     .summary = "1f1b with twice the warm-up, which hides P2P transfers",
     .use = "Where P2P transfers between pipeline ranks are slow and memory is left: it pays for "
            "P2P transfers while the pipeline fills and drains, 1f1b for nearly two with every "
            "microbatch.",
     .source = "Zhuang et al. 2023, arXiv 2211.05322",
     .accepts = "vpp = 1, any microbatches",
     .bubble = "(p-1)(tF+tB+tW)",
     .peak = "min(m, 2(p-1-r)+1)",
     .idle = fused,
     .held = [](const PipelineTerms& c, double r) { return std::min(c.m, 2 * (c.p - 1 - r) + 1); },
     .holds = always},
    {.name = "interleaved",
     .build = interleaved,
     .summary = "1f1b over several short stages per pipeline rank",
     .use = "To divide the bubble of 1f1b by the virtual stages without taking the backward pass "
            "apart. Costs memory and as many times the P2P transfers; stops paying when a P2P "
            "transfer takes as long as a virtual stage.",
     .source = "Narayanan et al. 2021, arXiv 2104.04473; free groups: Llama 3, 2024, arXiv "
               "2407.21783",
     .accepts = kGroups,
     .chunks = 0,
     .is_planned = true,
     .bubble = "(p-1)(tF+tB+tW)/v where each group has p or more",
     .peak = "min(m, ((v-1)N+2(p-1-r)+1)/v)",
     .idle = fused,
     .held = [](const PipelineTerms& c,
                double r) { return grouped_held(c, 2 * (c.p - 1 - r) + 1); },
     .holds = in_groups,
     .build_grouped = interleaved,
     .pytorch = "Interleaved1F1B"},
    {.name = "looped-bfs",
     .build = looped_bfs,
     .summary = "all microbatches through a virtual stage before the next virtual stage",
     .use = "With ZeRO-3: a virtual stage's parameters are gathered once for all microbatches. "
            "Holds the activations of all of them, so it wants few microbatches or recompute.",
     .source = "Lamy-Poirier 2023, arXiv 2211.05953",
     .accepts = "any vpp, any microbatches",
     .chunks = 0,
     .bubble = "(p-1)(tF+tB+tW)/v where m >= p",
     .peak = "m",
     .idle = fused,
     .held = all_held,
     .holds = fills},
    {.name = "zb-h1",
     .build = zb_h1,
     .summary = "1f1b with weight gradients delayed into the bubble",
     .use = "With F, I and W of equal length a third of the bubble of 1f1b, at its peak memory, "
            "which every pipeline rank then holds. The first to try once backward passes can be "
            "taken apart.",
     .source = "Qi et al. 2024, arXiv 2401.10241",
     .accepts = "vpp = 1, any microbatches",
     .is_planned = true,
     .bubble = "(p-1)max(tF, tB, tF+tB-tW) where m >= p",
     .peak = "min(m, p)",
     .idle = delayed,
     .held = filled_held,
     .holds = fills},
    {.name = "interleaved-zb",
     .build = interleaved_zb,
     .summary = "interleaved, with weight gradients delayed into the bubble",
     .use = "The smallest bubble where P2P transfers cost next to nothing. With slow P2P transfers "
            "and many virtual stages it is the first to lose: its warm-up is half that of "
            "interleaved.",
     .source = "PyTorch's interleaved zero bubble schedule, 2024, after arXiv 2401.10241",
     .accepts = kGroups,
     .chunks = 0,
     .bubble = "(p-1)max(tF, tB, tF+tB-tW)/v where each group has p or more",
     .peak = "min(m, ((v-1)N+p)/v)",
     .idle = delayed,
     .held = [](const PipelineTerms& c, double) { return grouped_held(c, c.p); },
     .holds = in_groups,
     .build_grouped = interleaved_zb,
     .pytorch = "InterleavedZeroBubble"},
    {.name = "zbv",
     .build = zbv,
     .summary = "a V of two virtual stages whose delayed weight gradients fill the bubble",
     .use = "Half the bubble of zb-h1 at the same memory, with first and last stage on one "
            "pipeline rank, so that tied weights need no transfer. Made for F, I and W of equal "
            "length.",
     .source = "Qi et al. 2024, arXiv 2401.10241",
     .accepts = "vpp = 2, any microbatches",
     .chunks = 2,
     .placement = Placement::kV,
     .is_planned = true,
     .bubble = "max((p-1)tB, (2p-3)tF-(p-2)tB, 2(p-1)tF-p tB)/2 where tB = tW, m >= 2p-1",
     .peak = "min(m, p) at most",
     .idle = zbv_idle,
     .held = filled_held,
     .holds = [](const PipelineTerms& c) { return is_even(c) && c.m >= 2 * c.p - 1; },
     .pytorch = "ZBVZeroBubble"},
    {.name = "v-half",
     .build = v_half,
     .summary = "a V of two virtual stages that holds half of what 1f1b holds",
     .use = "When 1f1b does not fit: half its activations, evenly over the pipeline ranks, for a "
            "bubble that refilling brings to half of 1f1b's.",
     .source = "Qi et al. 2024, arXiv 2405.15362",
     .accepts = "vpp = 2, any microbatches",
     .chunks = 2,
     .placement = Placement::kV,
     .is_planned = true,
     .bubble = "max((2p+2)tF+(5p-6)tB, (4p-2)tF+(3p-2)tB)/4, p odd (p-1)max(2tF+5tB, 4tF+3tB)/4, "
               "where tB = tW, 2tF/3 <= tB <= 2tF, m > p/2",
     .peak = "min(m, floor((p+2)/2), (m+1+ceil(r/2))/2), p odd floor(r/2)",
     .idle = v_half_idle,
     .held = v_half_held,
     .holds =
         [](const PipelineTerms& c) {
           return is_even(c) && 2 * c.tf <= 3 * c.tb && c.tb <= 2 * c.tf && 2 * c.m > c.p;
         }},
    {.name = "v-min",
     .build = v_min,
     .summary = "a V of two virtual stages that holds a third of what 1f1b holds",
     .use = "When nothing else fits, and only with F, I and W of equal length: otherwise it loses "
            "time with every microbatch.",
     .source = "Qi et al. 2024, arXiv 2405.15362",
     .accepts = "vpp = 2, any microbatches",
     .chunks = 2,
     .placement = Placement::kV,
     .is_planned = true,
     .bubble = "(4p-5)tF/2, 3 divides p (4p-3)tF/2, where tF = tB = tW, m >= (2p+2)/3; else it "
               "grows with m",
     .peak = "floor((p+4)/3), p = 2 mod 3 one less where 3 divides r",
     .idle = v_min_idle,
     .held = v_min_held,
     .holds =
         [](const PipelineTerms& c) {
           return is_even(c) && c.tf <= 2 * c.tb && 3 * c.m >= 2 * c.p + 2;
         }},
    {.name = "dualpipe-v",
     .build = dualpipe_v,
     .summary = "a V of two virtual stages filled from both ends; its F and B in turn",
     .use = "For many microbatches and P2P transfers or expert exchanges worth hiding: a forward "
            "and a backward pass of different microbatches stand side by side all through the "
            "middle of a step.",
     .source = "DualPipe, DeepSeek-V3, 2024, arXiv 2412.19437; its V form: Sea AI Lab 2025",
     .accepts = "vpp = 2, microbatches >= 2p",
     .chunks = 2,
     .placement = Placement::kV,
     .is_planned = true,
     .bubble = "max((p-1)tF, (p-1)(2tF-tB-tW), (p-1)tB-tF)/2 where tB <= tW",
     .peak = "p+1/2",
     .idle = dualpipe_idle,
     .held = [](const PipelineTerms& c, double) { return c.p + 0.5; },
     .holds = [](const PipelineTerms& c) { return c.m >= 2 * c.p && c.tb <= c.tw; }},
};

}  // namespace

std::span<const CatalogRow> catalog() { return kRows; }

const CatalogRow& row(std::string_view name) {
  const auto found = std::ranges::find(kRows, name, &CatalogRow::name);
  LS_CHECK(found != std::end(kRows), "no such schedule");
  return *found;
}

Result<CatalogRow> find(std::string_view name) {
  std::string names, here;
  for (const CatalogRow& row : kRows) {
    if (row.name == name) return row;
    if (!row.pytorch.empty() && row.pytorch == name)
      here = "here it is called `" + std::string(row.name) + "`; ";
    names += (names.empty() ? "`" : ", `") + std::string(row.name) + "`";
  }
  return Error{Code::kUnknownChoice, "there is no schedule `" + std::string(name) + "`",
               here + "schedules are " + names};
}

}  // namespace lockstep::pipeline

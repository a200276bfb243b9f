#include "lockstep/spec/layout_space.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <map>
#include <queue>
#include <set>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/spec/legal.h"

namespace lockstep::spec {
namespace {

using Many = std::vector<Layout>;

// Every layout that `vary` makes of each of `from`.
template <class Vary>
Many each(const Many& from, const Vary& vary) {
  Many made;
  for (const Layout& layout : from) vary(layout, made);
  return made;
}

// `base`, changed by `set`.
template <class Set>
void add(const Layout& base, Many& made, const Set& set) {
  set(made.emplace_back(base));
}

void vary_tensor(const Layout& base, std::int64_t ranks, Many& made) {
  for (std::int64_t tp = 1; tp <= ranks; ++tp) {
    if (ranks % tp != 0) continue;
    for (const bool sp : {true, false})
      if (tp > 1 || sp) add(base, made, [&](Layout& l) { l.degrees.tp = tp, l.sp = sp; });
  }
}

void vary_context(const Layout& base, std::int64_t ranks, Many& made) {
  const std::int64_t left = ranks / base.degrees.tp;
  add(base, made, [](Layout&) {});
  for (std::int64_t cp = 2; cp <= left; ++cp)
    for (const model::CpMethod way : model::kCpMethods)
      if (left % cp == 0) add(base, made, [&](Layout& l) { l.degrees.cp = cp, l.context = way; });
}

void vary_mesh(const Layout& base, std::int64_t ranks, Many& made) {
  const std::int64_t left = ranks / (base.degrees.tp * base.degrees.cp);
  for (std::int64_t pp = 1; pp <= left; ++pp) {
    if (left % pp != 0) continue;
    const std::int64_t dp = left / pp;
    for (std::int64_t shard = dp; shard >= 1; --shard) {
      if (dp % shard != 0) continue;
      add(base, made, [&](Layout& l) {
        l.degrees.pp = pp, l.degrees.dp = dp;
        if (shard < dp) l.degrees.dp_shard = shard;
      });
    }
  }
}

// Ranks that share an expert, and groups of them that share the experts.
void vary_experts(const Layout& base, std::int64_t experts, Many& made) {
  const std::int64_t tp = base.degrees.tp;
  for (std::int64_t etp = tp; etp >= 1; --etp) {
    if (tp % etp != 0 || (etp < tp && !base.sp)) continue;
    const std::int64_t groups = base.degrees.dp * base.degrees.cp * tp / etp;
    for (std::int64_t ep = 1; ep <= std::min(groups, experts); ++ep)
      if (groups % ep == 0 && experts % ep == 0)
        add(base, made, [&](Layout& l) { l.degrees.ep = ep, l.degrees.etp = etp; });
  }
}

void vary_zero(const Layout& base, Many& made) {
  for (int zero = 0; zero <= 3; ++zero) add(base, made, [&](Layout& l) { l.zero = zero; });
}

void vary_microbatches(const Layout& base, const Batch& batch, Many& made) {
  for (const std::int64_t m : {1, 2, 4})
    if (batch.global_batch % (base.degrees.dp * m) == 0)
      add(base, made, [&](Layout& l) { l.microbatches = m; });
}

void vary_schedule(const Layout& base, Many& made) {
  std::vector<pipeline::Schedule> seen;
  for (const std::string& name : schedule_names())
    for (const int chunks : {1, 2, 3}) {
      if (base.degrees.pp == 1 && chunks > 1) continue;
      const auto timetable =
          pipeline::find(name)->build({.coords = static_cast<int>(base.degrees.pp),
                                       .chunks = chunks,
                                       .microbatches = static_cast<int>(*base.microbatches)});
      if (!timetable.ok() || std::ranges::find(seen, *timetable) != seen.end()) continue;
      seen.push_back(*timetable);
      add(base, made, [&](Layout& l) { l.schedule = name, l.chunks = chunks; });
    }
}

// The first block of every second stage, and the others selectively.
Recompute some_blocks(const Layout& base) {
  Recompute some{model::kSelective};
  some.drop.block = true;
  for (std::int64_t stage = 0; stage < base.degrees.pp * base.chunks; ++stage)
    some.blocks.push_back(stage % 2 == 0 ? 1 : 0);
  return some;
}

void vary_policies(const Layout& base, Many& made) {
  for (const Period reduce : {Period::kStep, Period::kMicrobatch}) {
    if (reduce == Period::kMicrobatch && *base.microbatches == 1) continue;
    for (const Recompute& recompute :
         {Recompute{model::kKeepAll}, {model::kSelective}, {model::kWholeBlock}, some_blocks(base)})
      add(base, made, [&](Layout& l) { l.reduce = reduce, l.recompute = recompute; });
  }
}

// Of schedules that others stand for, the last layout alone: v-min is v-half with other distances,
// dualpipe-v another order on the placement of zbv.
void thin_out(Many& all) {
  for (const char* name : {"v-min", "dualpipe-v"}) {
    const auto named = [&](const Layout& l) { return l.schedule == name; };
    const auto after_last = std::find_if(all.rbegin(), all.rend(), named).base();
    if (after_last == all.begin()) continue;
    const auto last = std::prev(after_last);
    all.erase(std::remove_if(all.begin(), last, named), last);
  }
}

constexpr std::array kFactors = {
    Factor{"tp", [](const Layout& l) { return std::to_string(l.degrees.tp); }},
    Factor{"sp",
           [](const Layout& l) {
             return std::string(l.degrees.tp == 1 ? "-" : l.sp ? "yes" : "no");
           }},
    Factor{"cp",
           [](const Layout& l) {
             return l.degrees.cp == 1 ? "1" : join_parts(l.degrees.cp, " ", to_text(l.context));
           }},
    Factor{"pp", [](const Layout& l) { return std::to_string(l.degrees.pp); }},
    Factor{"dp_replicate",
           [](const Layout& l) {
             return std::to_string(l.degrees.dp / l.degrees.dp_shard.value_or(l.degrees.dp));
           }},
    Factor{
        "dp_shard",
        [](const Layout& l) { return std::to_string(l.degrees.dp_shard.value_or(l.degrees.dp)); }},
    Factor{"zero", [](const Layout& l) { return std::to_string(l.zero); }},
    Factor{"m", [](const Layout& l) { return std::to_string(l.microbatches.value_or(0)); }},
    Factor{"schedule", [](const Layout& l) { return l.schedule; }},
    Factor{"vpp", [](const Layout& l) { return std::to_string(l.chunks); }},
    Factor{"reduce", [](const Layout& l) { return std::string(name_of(l.reduce)); }},
    Factor{"recompute",
           [](const Layout& l) {
             return l.recompute.blocks.empty() ? to_text(l.recompute) : std::string("some blocks");
           }},
    // Of mixtures alone.
    Factor{"ep", [](const Layout& l) { return std::to_string(l.degrees.ep); }},
    Factor{"etp",
           [](const Layout& l) {
             const mesh::Degrees& d = l.degrees;
             return d.tp == 1 ? "-" : d.etp == d.tp ? "tp" : std::to_string(d.etp);
           }},
};
constexpr std::size_t kOfMixtures = 2;

}  // namespace

std::span<const Factor> factors(std::span<const Layout> all) {
  const bool shares_experts = std::ranges::any_of(
      all, [](const Layout& layout) { return layout.degrees.ep > 1 || layout.degrees.etp > 1; });
  return std::span(kFactors).first(kFactors.size() - (shares_experts ? 0 : kOfMixtures));
}

namespace {

// Calls `use` with every ascending choice of `size` of the numbers [0, count).
void choices(int count, int size, const std::function<void(const std::vector<int>&)>& use) {
  std::vector<int> chosen(static_cast<std::size_t>(size));
  const std::function<void(int, int)> fill = [&](int at, int from) {
    if (at == size) return use(chosen);
    for (int i = from; i <= count - (size - at); ++i) {
      chosen[static_cast<std::size_t>(at)] = i;
      fill(at + 1, i + 1);
    }
  };
  fill(0, 0);
}

// Combinations of one value each of `strength` factors, whether any layout has them or not.
std::int64_t count_conceivable(std::span<const Layout> all, int strength) {
  std::vector<std::int64_t> values;
  for (const Factor& factor : factors(all)) {
    std::set<std::string> different;
    for (const Layout& layout : all) different.insert(factor.value(layout));
    values.push_back(std::ssize(different));
  }
  std::int64_t sum = 0;
  choices(static_cast<int>(values.size()), strength, [&](const std::vector<int>& chosen) {
    std::int64_t product = 1;
    for (const int f : chosen) product *= values[static_cast<std::size_t>(f)];
    sum += product;
  });
  return sum;
}

// For each layout the numbers of the combinations it contains; each combination has one number.
std::vector<std::vector<int>> combinations(std::span<const Layout> all, int strength) {
  std::vector<std::vector<int>> within(all.size());
  std::map<std::vector<std::string>, int> numbers;
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<std::string> values;
    for (const Factor& factor : factors(all)) values.push_back(factor.value(all[i]));
    choices(static_cast<int>(values.size()), strength, [&](const std::vector<int>& chosen) {
      std::vector<std::string> key;
      for (const int f : chosen) {
        key.push_back(std::to_string(f));
        key.push_back(values[static_cast<std::size_t>(f)]);
      }
      within[i].push_back(
          numbers.emplace(std::move(key), static_cast<int>(numbers.size())).first->second);
    });
  }
  return within;
}

}  // namespace

std::vector<Layout> layouts(const model::ModelConfig& model, std::int64_t ranks, const Batch& batch,
                            DType dtype) {
  LS_CHECK(ranks >= 1, ranks, " ranks");
  Many all = {Layout()};
  all = each(all, [&](const Layout& base, Many& made) { vary_tensor(base, ranks, made); });
  all = each(all, [&](const Layout& base, Many& made) { vary_context(base, ranks, made); });
  all = each(all, [&](const Layout& base, Many& made) { vary_mesh(base, ranks, made); });
  if (model.moe.experts > 0) {
    all = each(
        all, [&](const Layout& base, Many& made) { vary_experts(base, model.moe.experts, made); });
  }
  all = each(all, vary_zero);
  all = each(all, [&](const Layout& base, Many& made) { vary_microbatches(base, batch, made); });
  all = each(all, vary_schedule);
  all = each(all, vary_policies);
  std::erase_if(all, [&](const Layout& layout) {
    return !legal(model, layout, cut(batch, layout), dtype).empty();
  });
  thin_out(all);
  return all;
}

CoveringArray covering_array(std::span<const Layout> all, int strength,
                             const CoveringProgress& progress) {
  LS_CHECK(strength >= 1 && strength < static_cast<int>(kFactors.size()), "strength ", strength);
  const std::vector<std::vector<int>> within = combinations(all, strength);
  int left = 0;
  for (const std::vector<int>& own : within)
    for (const int number : own) left = std::max(left, number + 1);
  CoveringArray array = {{}, left, count_conceivable(all, strength) - left};
  std::vector<bool> covered(static_cast<std::size_t>(left), false);
  const auto gain = [&](std::size_t layout) {
    return std::ranges::count_if(within[layout],
                                 [&](int n) { return !covered[static_cast<std::size_t>(n)]; });
  };
  // A layout gains no more than it did before: who stays in front with its gain of now is best.
  // The earlier of equals is in front.
  using Candidate = std::pair<std::int64_t, std::int64_t>;  // gain, minus its place in `all`
  std::priority_queue<Candidate> candidates;
  for (std::size_t i = 0; i < all.size(); ++i)
    candidates.emplace(std::ssize(within[i]), -static_cast<std::int64_t>(i));
  while (left > 0) {
    const auto best = static_cast<std::size_t>(-candidates.top().second);
    const Candidate now = {gain(best), candidates.top().second};
    candidates.pop();
    if (!candidates.empty() && now < candidates.top()) {
      candidates.push(now);
      continue;
    }
    left -= static_cast<int>(now.first);
    for (const int number : within[best]) covered[static_cast<std::size_t>(number)] = true;
    array.layouts.push_back(all[best]);
    if (progress) progress(array.combinations - left, array.combinations);
  }
  return array;
}

}  // namespace lockstep::spec

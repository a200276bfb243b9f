// Lists against the tables of model/pass_record.h, which were written by hand beside nn: the same
// events in the same order, where those of one run of takes or of gives may be in any, and the same
// collectives.
#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/model/catalog.h"
#include "lockstep/model/pass_record.h"
#include "lockstep/parts/unit_passes.h"

namespace lockstep::parts {
namespace {

using model::Model;
using model::UnitSizes;

template <class Events>
std::vector<std::int64_t> ordered(const Events& events) {
  std::vector<std::int64_t> all;
  for (const auto& event : events) all.push_back(event.bytes);
  for (auto i = all.begin(); i != all.end();) {
    const auto end =
        std::find_if(i, all.end(), [&](std::int64_t x) { return (x > 0) != (*i > 0); });
    std::sort(i, end);
    i = end;
  }
  return all;
}

int kind_of(Kind kind) {
  return kind == Kind::kAllGather ? 0 : kind == Kind::kReduceScatter ? 1 : 2;
}

template <class Fn>
void for_each_sizes(const Model& model, Fn fn) {
  for (const std::int64_t tp : {1, 2, 4})
    for (const bool sp : {false, true}) {
      if (model.config.heads % tp != 0 || model.config.kv_heads % tp != 0) continue;
      for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16})
        for (int mask = 0; mask < 8; ++mask)
          for (const auto& [batch, seq, chunk] :
               {std::tuple{1, 16, 0}, {3, 200, 7}, {2, 1024, 512}})
            for (const int threads : {1, 3}) {
              UnitSizes sizes{.batch = batch, .seq = seq, .dtype = dtype, .head_chunk = chunk};
              sizes.drop = {(mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0};
              sizes.tp = tp, sizes.sequence_parallel = sp;
              sizes.threads = threads, sizes.packs_keys = threads == 1;
              fn(sizes);
            }
    }
}

std::string joined(const auto& events) {
  std::string all;
  for (const auto& event : events) all += event.name + " " + std::to_string(event.bytes) + "\n";
  return all;
}

TEST(Mirror, ListsDoWhatTheTablesSay) {
  int cases = 0, bad = 0;
  for (const char* name :
       {"llama-tiny", "llama3.2-1b", "gpt2-tiny", "qwen2-0.5b", "qwen3-0.6b", "gpt2-small"}) {
    const Model model = *describe(model::find(name)->config);
    for_each_sizes(model, [&](const UnitSizes& sizes) {
      for (const int position : {0, 1, model.num_units() - 1}) {
        const model::Unit& unit = model.unit(position);
        const bool block = unit.kind == model::UnitKind::kBlock;
        const bool head = unit.kind == model::UnitKind::kHead;
        if ((!block && sizes.drop != model::Drop{}) || (head && model.config.vocab % sizes.tp != 0))
          continue;
        const UnitPasses passes(model.config, unit, sizes);
        for (int i = 0; i < 9; ++i) {
          const auto pass = static_cast<UnitPass>(i);
          const bool has = pass == UnitPass::kForward || pass == UnitPass::kEvaluate ||
                           (head ? i == 8 : i != 8 && (block || (i != 1 && i != 3)));
          if (!has) continue;
          const auto want =
              model::pass_record(model.config, unit, sizes, static_cast<model::UnitPass>(i));
          ++cases;
          const auto& got = passes.collectives(pass);
          bool same = ordered(passes.events(pass)) == ordered(want.events) &&
                      got.size() == want.collectives.size();
          for (std::size_t k = 0; same && k < got.size(); ++k)
            same = kind_of(got[k].kind) == static_cast<int>(want.collectives[k].op) &&
                   got[k].bytes == want.collectives[k].bytes;
          if (same || ++bad > 3) continue;
          ADD_FAILURE() << name << " unit " << position << " " << kUnitPasses.name_of(pass)
                        << " tp " << sizes.tp << " sp " << sizes.sequence_parallel << " width "
                        << sizes.width() << " seq " << sizes.seq << "\n"
                        << joined(passes.events(pass)) << "---\n"
                        << joined(want.events) << "---\n"
                        << joined(got) << "---\n"
                        << joined(want.collectives);
        }
        if (block) {
          const auto stash = model::stash_tensors(model.config, unit, sizes);
          const auto work = model::work_tensors(model.config, unit, sizes);
          ASSERT_EQ(joined(passes.stash()), joined(stash));
          ASSERT_EQ(total(passes.work()), total(work));
        }
      }
    });
  }
  EXPECT_EQ(bad, 0);
  RecordProperty("cases", cases);
  std::printf("%d cases\n", cases);
}

}  // namespace
}  // namespace lockstep::parts

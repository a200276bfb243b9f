// What other trainers can do, a row each: a question that names one is answered with layouts that
// it runs, priced as it runs them; emit/ writes those down in its words. Plain values; any thread
// may read them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cost/analytic/price.h"
#include "lockstep/spec/layout.h"

namespace lockstep::planner {

struct Core;
struct Sharding;

struct Framework {
  std::string_view name;                         // as --for and --emit take it
  std::string_view title;                        // with the version that the row was read from
  std::string_view source;                       // its files
  std::vector<std::string_view> schedules = {};  // none: no pipeline
  std::vector<int> zero = {}, zero_piped = {};   // ZeRO stages without a pipeline, and with one
  std::vector<int> grouped = {};  // of these: also in groups of dp, for models without experts
  std::vector<model::CpMethod> contexts = {};
  bool spreads_keys = false;  // Ulysses gives each rank a head of keys of its own, and copies none
  bool shares_keys = false;   // tensor ranks may outnumber the heads of keys
  bool etp = false;           // experts cut by tensor ranks
  bool combines = false;  // tp, cp and pp go together; otherwise one of them at a time, and ep not
                          // with pp
  bool pipe_inside = false;    // both rank orders; otherwise tp,cp,dp,pp
  bool tied_pipeline = false;  // a tied embedding under a pipeline
  bool sp = false;             // sequence parallelism over tp
  bool fp8 = false;
  cost::Stack (*stack)(int zero);  // how it does all this; same kernels whatever the stage
  bool tp = true, ep = true;
  bool only_gpt = false;               // GPT-2's kind of models alone
  std::vector<model::Drop> rows = {};  // that it may recompute besides whole blocks
  bool is_written = false;             // emit() has words for it
};

std::span<const Framework> frameworks();
// Null where there is none of that name.
const Framework* find_framework(std::string_view name);

// Whether it runs such a part of a layout, whatever the rest is.
bool runs(const Framework& framework, const cost::ModelShape& shape, const Core& core);
bool runs(const Framework& framework, const cost::ModelShape& shape, const Core& core, int pp);
bool runs(const Framework& framework, const cost::ModelShape& shape, const Sharding& sharding,
          int whole, int pp);  // of `whole` devices that could share
bool runs(const Framework& framework, std::string_view schedule);

// What of a layout it does not run, as phrases; empty: it runs all. `request` is the layout's price
// request.
std::vector<std::string> lacking(const Framework& framework, const spec::Layout& layout,
                                 const cost::PriceRequest& request);

}  // namespace lockstep::planner

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
  std::string_view name;    // as --for and --emit take it
  std::string_view title;   // with the version that the row was read from
  std::string_view source;  // its files
  std::vector<std::string_view> schedules;
  std::vector<int> zero, zero_piped;  // ZeRO stages without a pipeline, and with one
  std::vector<int> grouped;           // of these: also in groups of dp, for models without experts
  std::vector<model::CpMethod> contexts;
  bool spreads_keys;   // Ulysses gives each rank a head of keys of its own, and copies none
  bool shares_keys;    // tensor ranks may outnumber the heads of keys
  bool etp;            // experts cut by tensor ranks
  bool combines;       // tp, cp and pp go together; otherwise one of them at a time, and ep not
                       // with pp
  bool pipe_inside;    // both rank orders; otherwise tp,cp,dp,pp
  bool tied_pipeline;  // a tied embedding under a pipeline
  bool sp;             // sequence parallelism over tp
  bool fp8;
  cost::Stack (*stack)(int zero);  // how it does all this; same kernels whatever the stage
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

#include "lockstep/backtest/run_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/csv.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/config/suggest.h"

namespace lockstep::backtest {
namespace {

// The first line of a table.
constexpr std::string_view kHeader =
    "id,source,source_locator,year,model,params_b,layers,hidden,ffn_hidden,heads,kv_heads,"
    "vocab,seq_len,arch,moe_experts,moe_topk,gpu,gpu_mem_gb,gpus,gpus_per_node,"
    "interconnect_intra,interconnect_inter,tp,pp,cp,ep,dp,vpp,zero_stage,seq_parallel,"
    "recompute,flash_attention,precision,micro_batch,global_batch,schedule,step_time_s,"
    "tflops_per_gpu,flops_convention,mfu_pct,tokens_per_s_per_gpu,peak_mem_gb,notes,head_dim,"
    "mem_kind,mfu_peak_tflops,attn_flops,outcome,derived_step_time_s,"
    "derived_tokens_per_s_per_gpu,flops_check,grade,split";

Error bad_table(std::string message, std::string help = {}) {
  return {Code::kBadRunTable, std::move(message), std::move(help)};
}

Result<void> check_columns(const std::vector<std::string>& columns) {
  const std::vector<std::string>& known = required_columns();
  std::vector<std::string> missing, unknown;
  for (const std::string& name : known)
    if (std::ranges::find(columns, name) == columns.end()) missing.push_back(name);
  for (const std::string& name : columns)
    if (std::ranges::find(known, name) == known.end() || std::ranges::count(columns, name) > 1)
      unknown.push_back(name);
  if (missing.empty() && unknown.empty()) return {};
  std::string message = "the table does not have the columns of published runs";
  if (!missing.empty()) message += "; missing: " + config::listed(missing);
  if (!unknown.empty()) message += "; unknown or twice: " + config::listed(unknown);
  return bad_table(message, "the first line names the columns, in any order");
}

}  // namespace

const std::vector<std::string>& required_columns() {
  static const std::vector<std::string> names = [] {
    std::string_view header = kHeader;
    int line = 1;
    return take_csv_record(header, line);
  }();
  return names;
}

const std::string& PublishedRun::text(std::string_view column) const {
  const auto found = std::ranges::find(*columns_, column);
  LS_CHECK(found != columns_->end(), "no column ", column);
  return cells_[static_cast<std::size_t>(found - columns_->begin())];
}

std::optional<double> PublishedRun::number(std::string_view column) const {
  const auto value = number_in<double>(text(column));
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<double> PublishedRun::measured_seconds() const {
  for (const char* column : {"step_time_s", "derived_step_time_s"})
    if (const auto seconds = number(column); seconds && *seconds > 0) return seconds;
  for (const char* column : {"tokens_per_s_per_gpu", "derived_tokens_per_s_per_gpu"}) {
    const auto rate = number(column), batch = number("global_batch"), seq = number("seq_len"),
               devices = number("gpus");
    if (rate && batch && seq && devices && *rate > 0 && *devices > 0)
      return *batch * *seq / (*rate * *devices);
  }
  return std::nullopt;
}

std::optional<double> PublishedRun::measured_bytes() const {
  const auto size = number("peak_mem_gb");
  if (!size || *size <= 0) return std::nullopt;
  const std::string& kind = text("mem_kind");
  // nvidia-smi prints MiB, so what sources call GB of a whole device are binary too.
  return *size * (kind == "unknown_gb" ? 1e9 : 1073741824.0);
}

Result<void> read_runs(std::string_view text, RunTable& table) {
  int line = 1;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  table.columns = take_csv_record(text, line);
  if (const auto ok = check_columns(table.columns); !ok.ok()) return ok.error();
  while (!text.empty()) {
    const int first = line;
    std::vector<std::string> cells = take_csv_record(text, line);
    if (cells.size() == 1 && cells.front().empty()) continue;
    if (cells.size() != table.columns.size())
      return bad_table(strf("line %d has %d cells, but there are %d columns", first,
                            static_cast<int>(cells.size()), static_cast<int>(table.columns.size())),
                       "cells with commas need quotes");
    table.rows.emplace_back(&table.columns, std::move(cells));
  }
  if (table.rows.empty()) return bad_table("the table has no rows");
  return {};
}

}  // namespace lockstep::backtest

// lockstep model: what a model is made of, what a token costs, what its states weigh.
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "cli/model/states.h"
#include "cli/model/unit.h"
#include "cli/table.h"
#include "cli/verb.h"
#include "lockstep/base/json.h"
#include "lockstep/base/units.h"
#include "lockstep/config/fields.h"
#include "lockstep/hf/config_json.h"
#include "lockstep/model/arch.h"
#include "lockstep/model/catalog.h"
#include "lockstep/model/flops.h"
#include "lockstep/model/hf_names.h"
#include "lockstep/model/state_bytes.h"
#include "lockstep/model/user_model.h"

namespace lockstep::cli {
namespace {

using model::Mask;
using model::Model;
using model::ModelConfig;
using model::ParamCount;
using model::Unit;
using model::UnitKind;

// Sequences are priced at the model's length, but not beyond what pretraining mostly uses.
constexpr std::int64_t kLongestDefaultSeq = 8192;

// The units with different parameters, in the order in which they first appear.
struct Part {
  const Unit* unit = nullptr;
  std::int64_t times = 0;
  std::string name;
};

std::vector<Part> parts_of(const Model& model) {
  std::vector<Part> parts;
  for (int position = 0; position < model.num_units(); ++position) {
    const Unit& unit = model.unit(position);
    const auto seen = std::ranges::find_if(
        parts, [&](const Part& part) { return part.unit->params == unit.params; });
    if (seen != parts.end()) {
      ++seen->times;
      continue;
    }
    Part part{&unit, 1, std::string(to_text(unit.kind))};
    if (unit.kind == UnitKind::kBlock && model.config.moe.dense_layers > 0)
      part.name += position <= model.config.moe.dense_layers ? ", dense" : ", experts";
    parts.push_back(std::move(part));
  }
  return parts;
}

// Parameters of one unit by role, largest first.
using RoleCount = std::pair<model::Role, std::int64_t>;

std::vector<RoleCount> roles_of(const Unit& unit) {
  std::vector<RoleCount> roles;
  for (const model::Param& param : unit.params) {
    if (param.tied) continue;
    const auto seen = std::ranges::find(roles, param.role, &RoleCount::first);
    if (seen != roles.end())
      seen->second += param.numel();
    else
      roles.emplace_back(param.role, param.numel());
  }
  std::ranges::stable_sort(roles, std::greater(), &RoleCount::second);
  return roles;
}

void print_shape(std::ostream& out, const ModelConfig& c) {
  const auto num = [](std::int64_t n) { return with_commas(n); };
  out << "family     " << to_text(c.family);
  if (hf_model_type(c) != to_text(c.family)) out << " (checkpoints: " << hf_model_type(c) << ")";
  out << "\n";
  out << "shape      " << num(c.layers) << " layers, hidden " << num(c.hidden);
  if (c.ffn > 0) out << ", ffn " << num(c.ffn);
  out << ", vocab " << num(c.vocab) << (c.tied ? " (tied)" : "") << "\n";
  out << "attention  " << num(c.heads) << " heads of " << num(c.head_dim);
  if (c.mla.kv_rank > 0)
    out << ", latent: kv rank " << num(c.mla.kv_rank) << ", values of " << num(c.mla.v_dim);
  else if (c.kv_heads != c.heads)
    out << ", " << num(c.kv_heads) << " key-value heads";
  if (c.window > 0)
    out << ", window " << num(c.window) << (c.window_every == 2 ? " every second layer" : "");
  out << "\n";
  if (c.moe.experts > 0) {
    out << "experts    " << num(c.moe.experts) << " of width " << num(c.moe.expert_ffn) << ", "
        << num(c.moe.top_k) << " per token";
    if (c.moe.shared_ffn > 0) out << ", shared " << num(c.moe.shared_ffn);
    if (c.moe.dense_layers > 0) out << ", first " << num(c.moe.dense_layers) << " layers dense";
    out << "\n";
  }
  out << "positions  " << num(c.max_positions)
      << (c.family == model::Family::kGpt2 ? ", learned"
                                           : ", rotary base " + num(std::llround(c.rope_theta)));
  if (c.rope_scaling.factor != 1.0)
    out << strf(", stretched %g times from ", c.rope_scaling.factor)
        << num(c.rope_scaling.original_positions);
  out << "\n";
  const Result<model::CatalogRow> row = model::find(c.name);
  if (row.ok() && row->config == c) out << "source     " << row->source << "\n";
}

void print_parameters(std::ostream& out, const Model& model) {
  const ParamCount all = count(model);
  const auto share = [&](std::int64_t part) {
    const double percent = 100.0 * static_cast<double>(part) / static_cast<double>(all.total);
    return percent >= 0.05 || part == 0 ? strf("%.1f %%", percent) : std::string("<0.1 %");
  };
  Rows rows = {{"parameters", "units", "each", "total", "share"}};
  for (const Part& part : parts_of(model)) {
    const std::int64_t each = count(*part.unit).total;
    rows.push_back({part.name, with_commas(part.times), with_commas(each),
                    with_commas(each * part.times), share(each * part.times)});
    if (part.unit->kind != UnitKind::kBlock && part.unit->kind != UnitKind::kMtp) continue;
    for (const auto& [role, number] : roles_of(*part.unit))
      rows.push_back({"  " + std::string(to_text(role)), "", with_commas(number),
                      with_commas(number * part.times), share(number * part.times)});
  }
  rows.push_back({"total", with_commas(model.num_units()), "", with_commas(all.total), ""});
  if (all.active != all.total)
    rows.push_back({"active per token", "", "", with_commas(all.active), share(all.active)});
  print_table(out, rows, "lrrrr");
}

void print_costs(std::ostream& out, const Model& model, std::int64_t seq) {
  Rows rows = {{strf("per token, sequence %s", with_commas(seq).c_str()), "matmul", "attention",
                "forward", "train"}};
  for (const auto& [mask, name] :
       {std::pair{Mask::kCausal, "causal attention"}, {Mask::kFull, "mask ignored"}}) {
    const model::TokenFlops flops = flops_per_token(model, seq, mask);
    rows.push_back(
        {name, four_digits(flops.matmul.value, "FLOP"), four_digits(flops.attention.value, "FLOP"),
         four_digits(flops.forward().value, "FLOP"), four_digits(flops.train().value, "FLOP")});
  }
  print_table(out, rows, "lrrrr");
  if (seq > model.config.max_positions)
    out << "The model was made for " << with_commas(model.config.max_positions) << " positions.\n";

  const auto parameters = static_cast<double>(count(model).total);
  const auto bytes = [&](double per_parameter) {
    return four_digits(per_parameter * parameters, "B");
  };
  out << "\n";
  rows = {{"states of Adam, one copy", "weights", "gradients", "optimizer", "total"}};
  for (const auto& [grads, name] :
       {std::pair{DType::kBF16, "bf16, bf16 gradients"}, {DType::kF32, "bf16, f32 gradients"}}) {
    const model::StateShare share = state_share(model::adam_widths(DType::kBF16, grads), 0, 1);
    rows.push_back({strf("%s, %g B each", name, share.total()), bytes(share.weights),
                    bytes(share.grads), bytes(share.optimizer), bytes(share.total())});
  }
  print_table(out, rows, "lrrrr");
}

Json shape_json(const ModelConfig& c) {
  Json shape = Json::object({{"layers", c.layers},
                             {"hidden", c.hidden},
                             {"heads", c.heads},
                             {"kv_heads", c.kv_heads},
                             {"head_dim", c.head_dim},
                             {"ffn", c.ffn},
                             {"vocab", c.vocab},
                             {"max_positions", c.max_positions},
                             {"tied", c.tied},
                             {"window", c.window},
                             {"mtp_layers", c.mtp_layers}});
  if (c.moe.experts > 0)
    shape.set("moe", Json::object({{"experts", c.moe.experts},
                                   {"top_k", c.moe.top_k},
                                   {"expert_ffn", c.moe.expert_ffn},
                                   {"shared_ffn", c.moe.shared_ffn},
                                   {"dense_layers", c.moe.dense_layers}}));
  if (c.mla.kv_rank > 0)
    shape.set("mla", Json::object({{"q_rank", c.mla.q_rank},
                                   {"kv_rank", c.mla.kv_rank},
                                   {"nope_dim", c.mla.nope_dim},
                                   {"rope_dim", c.mla.rope_dim},
                                   {"v_dim", c.mla.v_dim}}));
  return shape;
}

Json model_json(const Model& model, std::int64_t seq) {
  const ParamCount all = count(model);
  Json units = Json::array();
  for (const Part& part : parts_of(model)) {
    Json roles = Json::object();
    for (const auto& [role, number] : roles_of(*part.unit))
      roles.set(std::string(to_text(role)), number);
    const ParamCount each = count(*part.unit);
    units.push(Json::object({{"name", part.name},
                             {"kind", to_text(part.unit->kind)},
                             {"units", part.times},
                             {"parameters_each", each.total},
                             {"active_parameters_each", each.active},
                             {"parameters_each_by_role", std::move(roles)}}));
  }
  const auto train = [&](Mask mask) {
    return static_cast<std::int64_t>(std::llround(flops_per_token(model, seq, mask).train().value));
  };
  const auto states = [&](DType grads) {
    const double each = state_share(model::adam_widths(DType::kBF16, grads), 0, 1).total();
    return static_cast<std::int64_t>(each) * all.total;
  };
  const Result<model::CatalogRow> row = model::find(model.config.name);
  return Json::object(
      {{"schema", "lockstep.model/1"},
       {"name", model.config.name},
       {"family", to_text(model.config.family)},
       {"hf_model_type", hf_model_type(model.config)},
       {"source", row.ok() && row->config == model.config ? Json(row->source) : Json()},
       {"shape", shape_json(model.config)},
       {"parameters", all.total},
       {"active_parameters", all.active},
       {"parameters_by_axis",
        Json::object(
            {{"tensor", all.tensor}, {"expert", all.expert}, {"replicated", all.replicated}})},
       {"units", std::move(units)},
       {"seq", seq},
       {"flops_per_token", train(Mask::kCausal)},
       {"flops_per_token_full_attention", train(Mask::kFull)},
       {"state_bytes_bf16_grads", states(DType::kBF16)},
       {"state_bytes_f32_grads", states(DType::kF32)}});
}

Result<ExitCode> list_models(Output& output) {
  Rows rows = {
      {"model", "family", "parameters", "active", "layers", "hidden", "heads", "positions", ""}};
  Json models = Json::array();
  constexpr int kWidthWithSources = 130;
  for (const model::CatalogRow& row : model::catalog()) {
    const ModelConfig& c = row.config;
    const Model model = LS_TRY(describe(c));
    const ParamCount all = count(model);
    models.push(Json::object({{"name", c.name},
                              {"also", Json::list(row.also)},
                              {"family", to_text(c.family)},
                              {"parameters", all.total},
                              {"active_parameters", all.active},
                              {"source", row.source}}));
    rows.push_back({c.name, std::string(to_text(c.family)), billions(all.total),
                    all.active == all.total ? "" : billions(all.active), with_commas(c.layers),
                    with_commas(c.hidden),
                    c.kv_heads == c.heads ? with_commas(c.heads)
                                          : with_commas(c.heads) + "/" + with_commas(c.kv_heads),
                    with_commas(c.max_positions),
                    output.table_width >= kWidthWithSources ? std::string(row.source) : ""});
  }
  if (output.json)
    return print_json(
        output, Json::object({{"schema", "lockstep.model-list/1"}, {"models", std::move(models)}}));
  print_table(output.out, rows, "llrrrrrrl");
  return ExitCode::kOk;
}

Result<ExitCode> run_model(const Args& args, Output& output) {
  LS_TRY(check_alone(args, {"fields", "seq", "unit", "dp", "MODEL"}));
  LS_TRY(check_unit_options(args));
  LS_TRY(check_state_options(args));
  if (args.flag("list")) return list_models(output);
  if (args.flag("fields") && output.json)
    return print_json(output, config::fields_json(model::model_fields()));
  if (args.flag("fields")) {
    output.out << config::fields_text(model::model_fields(), output.width);
    return ExitCode::kOk;
  }
  if (!args.has("MODEL"))
    return Error{Code::kBadOptionValue, "no model was named",
                 "name one, for example `lockstep model llama3-8b`; `lockstep model "
                 "--list` shows the known ones"};
  const std::string name = args.text("MODEL");
  config::Report report;
  const std::optional<hf::HfConfig> found = hf::find_model(name, report);
  if (!found) return fail(output, report, name);
  const Model model = LS_TRY(describe(found->model));
  const std::int64_t seq = args.has("seq")
                               ? args.integer("seq")
                               : std::min(model.config.max_positions, kLongestDefaultSeq);
  if (args.has("dp")) return print_states(args, output, model);
  if (args.has("unit")) return print_unit(args, output, model, seq);
  if (output.json) return print_json(output, model_json(model, seq));
  const ParamCount all = count(model);
  output.out << output.paint(style::kBold, model.config.name) << ": " << billions(all.total)
             << " parameters";
  if (all.active != all.total) output.out << ", " << billions(all.active) << " active per token";
  output.out << "\n\n";
  print_shape(output.out, model.config);
  output.out << "\n";
  print_parameters(output.out, model);
  output.out << "\n";
  print_costs(output.out, model, seq);
  return ExitCode::kOk;
}

}  // namespace

Verb model_verb() {
  std::vector<Option> options = {
      flag("list", "List the known models"), flag("fields", "List the keys of a model file"),
      integer("seq", "TOKENS",
              "Sequence length for FLOPs, as 8192 or 8k (default: the model's, at most 8192)")
          .between(1, 1e9)
          .with(Suffixes::kBinary)};
  for (Option& option : unit_options()) options.push_back(std::move(option));
  for (Option& option : state_options()) options.push_back(std::move(option));
  return {.name = "model",
          .summary = "Parameters, FLOPs and states of a model",
          .description =
              "A model is a known name or a file with its sizes (`--fields` lists its keys). FLOPs "
              "of attention are given in both conventions in use: counting only the keys a query "
              "may see, and ignoring the mask. Training costs three forward passes. States are "
              "those of one unsharded copy, but with --dp.",
          .examples = {{"lockstep model llama3-405b", "the sizes of a known model"},
                       {"lockstep model llama3-405b --seq 131072", "the cost of long sequences"},
                       {"lockstep model llama3-8b --unit block --tp 2 --sp",
                        "what a block does, part by part"},
                       {"lockstep model llama3-8b --dp 64",
                        "what ZeRO leaves of the states on each of 64 ranks"},
                       {"lockstep model --list", "the known models"}},
          .options = std::move(options),
          .positionals = {{.name = "MODEL",
                           .help = "Name, file, or Hugging Face directory",
                           .required = false}},
          .run = run_model};
}

}  // namespace lockstep::cli

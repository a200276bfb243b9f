#include "cli/model/states.h"

#include <cmath>
#include <iterator>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "cli/table.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/json.h"
#include "lockstep/base/units.h"
#include "lockstep/draw/stacks.h"
#include "lockstep/model/state_bytes.h"
#include "lockstep/spec/legal.h"

namespace lockstep::cli {
namespace {

using model::StateShare;
using model::StateWidths;

constexpr int kStages = 4;  // of ZeRO, none included

// The ranks among which parameters are divided before data ranks share what is left.
struct Division {
  std::int64_t tp = 1, pp = 1, dp = 1;
};

Division division_of(const Args& args) {
  const auto degree = [&](const char* name) { return args.has(name) ? args.integer(name) : 1; };
  return {degree("tp"), degree("pp"), degree("dp")};
}

// Whether the model can be cut so; it need not run in this version.
Result<void> check_division(const model::ModelConfig& config, const Division& ranks) {
  spec::Layout layout{.degrees = {.tp = ranks.tp, .pp = ranks.pp, .dp = ranks.dp}, .sp = false};
  if (config.moe.experts > 0) layout.degrees.etp = ranks.tp;
  const spec::Batch batch{.seq = config.max_positions, .global_batch = ranks.dp};
  for (const Error& error : spec::legal(config, layout, batch, DType::kBF16))
    if (error.code != Code::kNotRunYet) return error;
  return {};
}

// Parameters of a tensor rank, of the mean pipeline rank: stages need not be even.
double own_parameters(const model::Model& model, const Division& ranks) {
  const model::ParamCount all = count(model);
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  return (real(all.tensor + all.expert) / real(ranks.tp) + real(all.replicated)) / real(ranks.pp);
}

struct Widths {
  std::string name;
  StateWidths widths;
};

std::vector<Widths> widths_of(const Args& args) {
  const DType compute = args.has("dtype") ? *parse_dtype(args.text("dtype")) : DType::kBF16;
  const std::string name(to_text(compute));
  std::vector<Widths> all = {{name, model::adam_widths(compute, compute)}};
  if (compute != DType::kBF16) return all;
  all.front().name += ", bf16 gradients";
  all.push_back({name + ", f32 gradients", model::adam_widths(compute, DType::kF32)});
  return all;
}

void print_stages(std::ostream& out, const Widths& one, double parameters, std::int64_t dp) {
  Rows rows = {{one.name, "weights", "gradients", "optimizer", "total", "a parameter"}};
  const auto bytes = [&](double each) { return four_digits(each * parameters, "B"); };
  for (int zero = 0; zero < kStages; ++zero) {
    const StateShare share = state_share(one.widths, zero, dp);
    rows.push_back({strf("ZeRO %d", zero), bytes(share.weights), bytes(share.grads),
                    bytes(share.optimizer), bytes(share.total()), strf("%.4g B", share.total())});
  }
  print_table(out, rows, "lrrrrr");
}

Json states_json(const model::Model& model, const Division& ranks, double parameters,
                 const std::vector<Widths>& all) {
  Json stages = Json::array();
  for (const Widths& one : all)
    for (int zero = 0; zero < kStages; ++zero) {
      const StateShare share = state_share(one.widths, zero, ranks.dp);
      stages.push(Json::object({{"states", one.name},
                                {"zero", zero},
                                {"weight_bytes", share.weights * parameters},
                                {"gradient_bytes", share.grads * parameters},
                                {"optimizer_bytes", share.optimizer * parameters},
                                {"bytes", share.total() * parameters}}));
    }
  return Json::object({{"schema", "lockstep.model-states/1"},
                       {"name", model.config.name},
                       {"parameters", count(model).total},
                       {"rank_parameters", parameters},
                       {"tp", ranks.tp},
                       {"pp", ranks.pp},
                       {"dp", ranks.dp},
                       {"stages", std::move(stages)}});
}

// A bar for each stage.
std::string picture(const std::string& title, const Widths& one, double parameters,
                    std::int64_t dp) {
  constexpr double kGB = 1e9;
  draw::Stacks stacks;
  stacks.title = title + "; " + one.name;
  stacks.unit = "GB";
  stacks.parts = {{"weights", 'w'}, {"gradients", 'g'}, {"optimizer", 'o'}};
  for (int zero = 0; zero < kStages; ++zero) {
    const StateShare share = state_share(one.widths, zero, dp);
    const double each = parameters / kGB;
    stacks.rows.push_back({strf("ZeRO %d", zero),
                           {share.weights * each, share.grads * each, share.optimizer * each}});
  }
  return svg(stacks);
}

}  // namespace

std::string four_digits(double value, const char* unit) {
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P", "E", "Z"};
  std::size_t step = 0;
  for (; value >= 999.95 && step + 1 < std::size(kPrefixes); ++step) value /= 1000;
  return strf("%#.4g %s%s", value, kPrefixes[step], unit);
}

std::string billions(std::int64_t number) {
  const auto value = static_cast<double>(number);
  if (value >= 999.5e9) return strf("%#.4gT", value / 1e12);
  if (value >= 999.5e6) return strf("%#.4gB", value / 1e9);
  if (value >= 999.5e3) return strf("%#.4gM", value / 1e6);
  return strf("%#.4gk", value / 1e3);
}

std::vector<Option> state_options() {
  return {integer("dp", "N",
                  "Print what one of N data ranks keeps under each ZeRO stage; with --tp "
                  "and --pp of its share of the model")
              .between(1, 1e6),
          integer("pp", "N", "With --dp: pipeline ranks (default 1); the mean of them is shown")
              .between(1, 1e6),
          text("svg", "OUT", "With --dp: the same as a picture")};
}

Result<void> check_state_options(const Args& args) {
  for (const char* name : {"pp", "svg"})
    if (args.has(name) && !args.has("dp"))
      return Error{Code::kBadOptionValue,
                   join_parts("--", name, " goes with what data ranks keep, but there is no --dp"),
                   "add --dp 1"};
  if (!args.has("dp")) return {};
  for (const char* name : {"unit", "seq"})
    if (args.has(name))
      return Error{
          Code::kBadOptionValue,
          join_parts("--dp shows the states of a rank, which --", name, " says nothing about"),
          join_parts("leave out --", name, ", or --dp")};
  return {};
}

Result<ExitCode> print_states(const Args& args, Output& output, const model::Model& model) {
  const Division ranks = division_of(args);
  LS_TRY(check_division(model.config, ranks));
  const double parameters = own_parameters(model, ranks);
  const std::vector<Widths> all = widths_of(args);
  std::string title =
      join_parts(model.config.name, ", ", billions(count(model).total), " parameters: what ");
  if (ranks.tp * ranks.pp == 1)
    title +=
        ranks.dp == 1 ? "one rank keeps" : join_parts("one of ", ranks.dp, " data ranks keeps");
  else
    title += join_parts("one of tp ", ranks.tp, " x pp ", ranks.pp, " x dp ", ranks.dp,
                        " ranks keeps, ", billions(std::llround(parameters)), " of them");
  if (args.has("svg"))
    LS_TRY(output.write(args.text("svg"), picture(title, all.front(), parameters, ranks.dp)));
  if (output.json) return print_json(output, states_json(model, ranks, parameters, all));
  output.out << title << "\n";
  for (const Widths& one : all) {
    output.out << "\n";
    print_stages(output.out, one, parameters, ranks.dp);
  }
  if (args.has("svg")) output.out << "wrote " << args.text("svg") << "\n";
  return ExitCode::kOk;
}

}  // namespace lockstep::cli

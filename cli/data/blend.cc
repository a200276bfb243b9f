// lockstep data blend: what a run takes from each of its files.
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "cli/data/data.h"
#include "cli/data/run.h"
#include "cli/run_file.h"
#include "cli/table.h"
#include "lockstep/base/check.h"
#include "lockstep/base/units.h"
#include "lockstep/spec/tokens.h"

namespace lockstep::cli {
namespace {

using data::CorpusTokens;
using data::Split;

// A split that was laid out, or why it cannot be.
struct Laid {
  Split split = Split::kTrain;
  Result<std::unique_ptr<CorpusTokens>> tokens;
};

std::vector<Laid> lay_out(const spec::Spec& spec) {
  std::vector<Laid> all;
  all.push_back({Split::kTrain, spec::open_training(spec)});
  for (const Split split : {Split::kValidation, Split::kTest})
    if (spec.data.shares[static_cast<std::size_t>(split)] > 0)
      all.push_back({split, CorpusTokens::open(spec.data, split,
                                               {.seq = spec.batch.seq, .samples = 0, .vocab = 0})});
  return all;
}

std::string passes(const data::Part& part) {
  return strf("%.3g", part.built == 0 ? 0.0
                                      : static_cast<double>(part.taken * part.epochs) /
                                            static_cast<double>(part.built));
}

void print(const Laid& laid, const spec::Spec& spec, Output& output) {
  const CorpusTokens& tokens = **laid.tokens;
  const char* bold = output.colour ? "\x1b[1m" : "";
  const char* plain = output.colour ? "\x1b[0m" : "";
  output.out << bold << to_text(laid.split) << plain << ": " << counted(tokens.samples(), "sample")
             << " of " << counted(spec.batch.seq, "token")
             << (laid.split == Split::kTrain ? ", the whole run" : ", one pass") << "\n";
  Rows rows = {{"  file", "weight", "achieved", "samples", "documents", "tokens", "passes", ""}};
  for (const data::Part& part : tokens.parts())
    rows.push_back(
        {"  " + part.file, strf("%.4f", part.weight),
         strf("%.4f", static_cast<double>(part.taken) / static_cast<double>(tokens.samples())),
         with_commas(part.taken), with_commas(part.documents), with_commas(part.tokens),
         passes(part), part.last_epoch_apart ? "last pass shuffled apart" : ""});
  print_table(output.out, rows, "lrrrrrrl");
}

Json to_json(const Laid& laid) {
  if (!laid.tokens.ok())
    return Json::object({{"split", to_text(laid.split)},
                         {"error", Json::object({{"code", to_text(laid.tokens.error().code)},
                                                 {"message", laid.tokens.error().message}})}});
  const CorpusTokens& tokens = **laid.tokens;
  Json files = Json::array();
  for (const data::Part& part : tokens.parts())
    files.push(Json::object({{"file", part.file},
                             {"weight", part.weight},
                             {"samples", part.taken},
                             {"documents", part.documents},
                             {"tokens", part.tokens},
                             {"epochs", part.epochs},
                             {"last_epoch_apart", part.last_epoch_apart},
                             {"samples_laid_out", part.built}}));
  return Json::object({{"split", to_text(laid.split)},
                       {"samples", tokens.samples()},
                       {"digest", to_hex(tokens.digest())},
                       {"files", std::move(files)}});
}

ExitCode run_blend(const Args& args, Output& output) {
  ExitCode code = ExitCode::kOk;
  const auto spec = load_run_with_data(args, output, code);
  if (!spec) return code;
  const std::vector<Laid> all = lay_out(*spec);
  if (!all[0].tokens.ok()) return fail(output, all[0].tokens.error());
  if (output.json) {
    Json splits = Json::array();
    for (const Laid& laid : all) splits.push(to_json(laid));
    print_json(output, Json::object({{"schema", "lockstep.data.blend/1"},
                                     {"seq", spec->batch.seq},
                                     {"seed", spec->data.seed},
                                     {"splits", std::move(splits)}}));
    return ExitCode::kOk;
  }
  for (const Laid& laid : all) {
    if (&laid != all.data()) output.out << "\n";
    if (laid.tokens.ok())
      print(laid, *spec, output);
    else
      output.out << to_text(laid.split) << ": none: " << laid.tokens.error().message << "\n";
  }
  return ExitCode::kOk;
}

}  // namespace

Verb data_blend_verb() {
  return {.name = "blend",
          .summary = "Show what a run takes from each file of its [data]",
          .description =
              "Lays out the samples of the run as training would and shows the weights asked for "
              "and achieved. A file that is small for its weight shows as many passes. Nothing is "
              "written, with or without --dry-run.",
          .examples = {{"lockstep data blend run.toml --dry-run", "shares and passes"},
                       {"lockstep data blend run.toml --dry-run --set 'data.weights=[2, 1]'",
                        "with other weights"}},
          .options = {set_option(), flag("dry-run", "Write nothing, as always")},
          .positionals = {{.name = "FILE", .help = "Run file, in TOML or JSON"}},
          .run = run_blend};
}

}  // namespace lockstep::cli

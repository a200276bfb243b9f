// What verbs of `lockstep data` tell of a run's data.
#include <algorithm>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "cli/run_file.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "lockstep/base/check.h"
#include "lockstep/base/units.h"
#include "lockstep/spec/tokens.h"

namespace lockstep::cli {
namespace {

Result<void> check_names_data(const Args& args, const spec::Spec& spec) {
  if (!spec.data.files.empty()) return {};
  return Error{Code::kMissingKey,
               join_parts("`", args.text("FILE"), "` names no data: `data.files` is not set"),
               "add files = [\"prefix\"] to [data]"};
}

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
  output.out << output.paint(style::kBold, to_text(laid.split)) << ": "
             << counted(tokens.samples(), "sample") << " of " << counted(spec.batch.seq, "token")
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
  return Json::object({{"split", to_text(laid.split)},
                       {"samples", tokens.samples()},
                       {"digest", to_hex(tokens.digest())},
                       {"files", Json::list(tokens.parts(), [](const data::Part& part) {
                          return Json::object({{"file", part.file},
                                               {"weight", part.weight},
                                               {"samples", part.taken},
                                               {"documents", part.documents},
                                               {"tokens", part.tokens},
                                               {"epochs", part.epochs},
                                               {"last_epoch_apart", part.last_epoch_apart},
                                               {"samples_laid_out", part.built}});
                        })}});
}

Result<ExitCode> run_blend(const Args& args, Output& output) {
  config::Report report;
  const auto spec = load_spec(args, report);
  if (!spec) return fail(output, report, subject_of(args));
  LS_TRY(check_names_data(args, *spec));
  const std::vector<Laid> all = lay_out(*spec);
  if (!all[0].tokens.ok()) return all[0].tokens.error();
  if (output.json)
    return print_json(
        output, Json::object(
                    {{"schema", "lockstep.data.blend/1"},
                     {"seq", spec->batch.seq},
                     {"seed", spec->data.seed},
                     {"splits", Json::list(all, [](const Laid& laid) { return to_json(laid); })}}));
  for (const Laid& laid : all) {
    if (&laid != all.data()) output.out << "\n";
    if (laid.tokens.ok())
      print(laid, *spec, output);
    else
      output.out << to_text(laid.split) << ": none: " << laid.tokens.error().message << "\n";
  }
  return ExitCode::kOk;
}

Split split_of(const std::string& name) {
  return *std::ranges::find_if(data::kSplits, [&](Split split) { return to_text(split) == name; });
}

// Tokens of a sample, and the one after them.
std::vector<std::int64_t> text_of(const CorpusTokens& tokens, std::int64_t sample,
                                  std::int64_t seq) {
  std::vector<std::int64_t> text(seq), labels(text.size());
  tokens.read(sample, text, labels);
  text.push_back(labels.back());
  return text;
}

// "12: 5 7 9 ...", cut to the width.
void print(std::int64_t sample, const std::vector<std::int64_t>& text, Output& output) {
  std::string line = join_parts(sample, ":");
  for (const std::int64_t token : text) {
    const std::string word = join_parts(" ", token);
    if (line.size() + word.size() + 4 > static_cast<std::size_t>(output.width)) {
      line += " ...";
      break;
    }
    line += word;
  }
  output.out << line << "\n";
}

Result<ExitCode> run_sample(const Args& args, Output& output) {
  config::Report report;
  const auto spec = load_spec(args, report);
  if (!spec) return fail(output, report, subject_of(args));
  LS_TRY(check_names_data(args, *spec));
  const Split split = split_of(args.text("split"));
  const auto tokens =
      LS_TRY(CorpusTokens::open(spec->data, split,
                                {.seq = spec->batch.seq,
                                 .samples = split == Split::kTrain ? spec::num_samples(*spec) : 0,
                                 .vocab = spec->model.vocab}));
  const std::int64_t first = args.integer("first"), all = tokens->samples();
  if (first >= all)
    return Error{Code::kBadOptionValue,
                 join_parts("there is no sample ", with_commas(first), ": the ", to_text(split),
                            " split has ", with_commas(all)),
                 join_parts("give --first from 0 to ", all - 1)};
  const std::int64_t end = std::min(all, first + args.integer("count"));
  Json samples = Json::array();
  for (std::int64_t sample = first; sample < end; ++sample) {
    const auto text = text_of(*tokens, sample, spec->batch.seq);
    if (!output.json) {
      print(sample, text, output);
      continue;
    }
    samples.push(Json::object({{"sample", sample}, {"tokens", Json::list(text)}}));
  }
  if (output.json)
    print_json(output, Json::object({{"schema", "lockstep.data.sample/1"},
                                     {"split", to_text(split)},
                                     {"of", all},
                                     {"samples", std::move(samples)}}));
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

Verb data_sample_verb() {
  return {
      .name = "sample",
      .summary = "Show the tokens of samples, in the order a run takes them",
      .description =
          "Sample n holds the same tokens in every layout: step s of a batch of B takes samples s "
          "x B to s x B + B - 1. Each is shown with the token after it, which is its last label.",
      .examples = {{"lockstep data sample run.toml --first 1000 --count 2",
                    "two samples of the training split"}},
      .options = {set_option(),
                  choice("split", "SPLIT", {"train", "validation", "test"}, "Part of the data")
                      .initially("train"),
                  integer("first", "N", "First sample to show").initially("0").between(0, 1e15),
                  integer("count", "N", "How many").initially("8").between(1, 1e9)},
      .positionals = {{.name = "FILE", .help = "Run file, in TOML or JSON"}},
      .run = run_sample};
}

}  // namespace lockstep::cli

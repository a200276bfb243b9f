// lockstep data sample: the tokens that a run sees.
#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "cli/data/data.h"
#include "cli/data/run.h"
#include "cli/run_file.h"
#include "lockstep/base/check.h"
#include "lockstep/base/units.h"
#include "lockstep/spec/tokens.h"

namespace lockstep::cli {
namespace {

using data::CorpusTokens;
using data::Split;

Split split_of(const std::string& name) {
  return *std::ranges::find_if(data::kSplits, [&](Split split) { return to_text(split) == name; });
}

// Tokens of a sample, and the one after them.
std::vector<std::int64_t> text_of(const CorpusTokens& tokens, std::int64_t sample,
                                  std::int64_t seq) {
  std::vector<std::int64_t> text(static_cast<std::size_t>(seq)), labels(text.size());
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

ExitCode run_sample(const Args& args, Output& output) {
  ExitCode code = ExitCode::kOk;
  const auto spec = load_run_with_data(args, output, code);
  if (!spec) return code;
  const Split split = split_of(args.text("split"));
  const auto tokens =
      CorpusTokens::open(spec->data, split,
                         {.seq = spec->batch.seq,
                          .samples = split == Split::kTrain ? spec::num_samples(*spec) : 0,
                          .vocab = spec->model.vocab});
  if (!tokens.ok()) return fail(output, tokens.error());
  const std::int64_t first = args.integer("first"), all = (*tokens)->samples();
  if (first >= all)
    return fail(output, Error{Code::kBadOptionValue,
                              join_parts("there is no sample ", with_commas(first), ": the ",
                                         to_text(split), " split has ", with_commas(all)),
                              join_parts("give --first from 0 to ", all - 1)});
  const std::int64_t end = std::min(all, first + args.integer("count"));
  Json samples = Json::array();
  for (std::int64_t sample = first; sample < end; ++sample) {
    const auto text = text_of(**tokens, sample, spec->batch.seq);
    if (!output.json) {
      print(sample, text, output);
      continue;
    }
    Json ids = Json::array();
    for (const std::int64_t id : text) ids.push(id);
    samples.push(Json::object({{"sample", sample}, {"tokens", std::move(ids)}}));
  }
  if (output.json)
    print_json(output, Json::object({{"schema", "lockstep.data.sample/1"},
                                     {"split", to_text(split)},
                                     {"of", all},
                                     {"samples", std::move(samples)}}));
  return ExitCode::kOk;
}

}  // namespace

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

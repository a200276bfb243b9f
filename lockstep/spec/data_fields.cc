#include "lockstep/spec/data_fields.h"

#include <algorithm>
#include <limits>
#include <string>

#include "lockstep/base/check.h"

namespace lockstep::spec {
namespace {

using config::FieldType;

constexpr std::int64_t kMaxSeed = std::numeric_limits<std::uint32_t>::max();

void check_orphans(const config::Settings& settings, std::vector<Contradiction>& found) {
  for (const char* key : {"weights", "split", "seed"}) {
    const std::string path = join_parts("data.", key);
    if (settings.is_set(path))
      found.push_back({{Code::kConflict, join_parts("`", path, "` is set, but there are no files"),
                        "name the token files: files = [\"prefix\"], or leave it out"},
                       {{{path}, "has nothing to divide"}}});
  }
}

void check_weights(const config::Settings& settings, std::vector<Contradiction>& found) {
  const std::size_t files = settings.texts("data.files").size();
  const std::size_t weights = settings.reals("data.weights").size();
  if (!settings.is_set("data.weights") || settings.is_refused("data.weights") || weights == files)
    return;
  found.push_back({{Code::kConflict,
                    join_parts("`data.weights` has ", weights, weights == 1 ? " item" : " items",
                               " for ", files, files == 1 ? " file" : " files"),
                    "give each file its weight, or leave the weights out: then each counts by "
                    "the samples it has"},
                   {{{"data.weights"}, join_parts(weights)}, {{"data.files"}, join_parts(files)}}});
}

void check_split(const config::Settings& settings, std::vector<Contradiction>& found) {
  const std::vector<double> shares = settings.reals("data.split");
  if (!shares.empty() && shares.size() <= data::kSplits.size() && shares[0] > 0) return;
  if (settings.is_refused("data.split")) return;
  const std::string what =
      shares.empty() || shares.size() > data::kSplits.size()
          ? join_parts("`data.split` has ", shares.size(), " shares; it takes 1 to 3")
          : std::string("`data.split` leaves nothing to train on: its first share is 0");
  found.push_back({{Code::kOutOfRange, what,
                    "write the shares of training, validation and test: split = [969, 30, 1]"},
                   {{{"data.split"}, ""}}});
}

void check_seed(const config::Settings& settings, std::vector<Contradiction>& found) {
  const auto seed = settings.integer("train.seed");
  if (settings.is_set("data.seed") || !seed || *seed <= kMaxSeed) return;
  found.push_back({{Code::kConflict,
                    join_parts("`train.seed` = ", *seed, " cannot order the data: seeds of ",
                               "Megatron's order end at ", kMaxSeed),
                    join_parts("give data.seed from 0 to ", kMaxSeed)},
                   {{{"train.seed"}, "also orders the data"},
                    {{"data.seed"}, "follows train.seed where it is not set"}}});
}

}  // namespace

std::vector<config::Field> data_fields() {
  return {
      {.path = "data.files",
       .type = FieldType::kList,
       .doc = "Token files: prefixes of Megatron pairs (PREFIX.bin and PREFIX.idx), or llm.c files "
              "ending in .bin.",
       .element = FieldType::kString,
       .known_as = {"data_path", "train_data_path", "dataset_path"}},
      {.path = "data.weights",
       .type = FieldType::kList,
       .doc = "How often samples come from each file; only their ratio counts. Without them, in "
              "proportion to the samples each has.",
       .min = 0,
       .max = 1e15,
       .above_min = true,
       .element = FieldType::kReal,
       .known_as = {"blend"}},
      {.path = "data.split",
       .type = FieldType::kList,
       .doc = "Shares of training, validation and test in the documents of every file, which are "
              "divided in this order; only their ratio counts.",
       .initial = "[969, 30, 1]",
       .min = 0,
       .max = 1e15,
       .element = FieldType::kReal},
      {.path = "data.seed",
       .type = FieldType::kInt,
       .doc = "The order of the samples follows from it. Without it, train.seed.",
       .min = 0,
       .max = static_cast<double>(kMaxSeed),
       .known_as = {"data_seed"}},
  };
}

std::vector<Contradiction> data_contradictions(const config::Settings& settings) {
  std::vector<Contradiction> found;
  if (!settings.is_set("data.files")) {
    check_orphans(settings, found);
    return found;
  }
  if (settings.texts("data.files").empty() && !settings.is_refused("data.files"))
    found.push_back({{Code::kOutOfRange, "`data.files` names no file",
                      "name at least one: files = [\"prefix\"], or leave the table out"},
                     {{{"data.files"}, ""}}});
  else if (!settings.is_refused("data.files"))
    check_weights(settings, found);
  check_split(settings, found);
  check_seed(settings, found);
  return found;
}

data::Corpus read_corpus(const config::Settings& settings, const config::Sources& sources) {
  data::Corpus corpus;
  if (!settings.is_set("data.files")) return corpus;
  for (const std::string& file : settings.texts("data.files"))
    corpus.files.push_back(sources.beside(settings.span("data.files"), file));
  corpus.weights = settings.reals("data.weights");
  corpus.shares = {};
  std::ranges::copy(settings.reals("data.split"), corpus.shares.begin());
  const auto seed = settings.integer("data.seed");
  corpus.seed = static_cast<std::uint32_t>(seed ? *seed : *settings.integer("train.seed"));
  return corpus;
}

}  // namespace lockstep::spec

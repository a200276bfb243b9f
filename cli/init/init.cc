// lockstep init: a run file with comments, to begin with.
#include <algorithm>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "cli/run_file.h"
#include "cli/text_file.h"
#include "cli/verbs.h"
#include "lockstep/base/check.h"
#include "lockstep/config/document.h"
#include "lockstep/config/fields.h"
#include "lockstep/model/user_model.h"
#include "lockstep/spec/legal.h"
#include "lockstep/spec/spec.h"

namespace lockstep::cli {
namespace {

// The keys that the file has a line for, in its order. What is not set is a comment with its
// default.
constexpr const char* kOffered[] = {
    "model.name",         "layout.tp",        "layout.sp",        "layout.cp",
    "layout.pp",          "layout.dp",        "layout.ep",        "layout.zero",
    "layout.schedule",    "layout.vpp",       "layout.recompute", "batch.seq",
    "batch.global_batch", "batch.microbatch", "train.steps",      "train.dtype",
    "train.lr",           "train.warmup",     "train.lr_decay",   "train.min_lr",
    "train.weight_decay", "train.clip",       "train.seed",       "train.eval_interval",
    "train.threads",      "data.files"};

// A batch that fits anywhere; the run's own is for whoever runs it to say.
constexpr std::int64_t kLongest = 1024, kSequences = 8;

std::string line_of(const config::Field& field, const config::Document& document) {
  const std::string key = field.path.substr(field.path.rfind('.') + 1);
  const config::Entry* const entry = document.find(field.path);
  const config::Value* const initial = spec::run_fields().initial_of(field.path);
  if (entry != nullptr) return key + " = " + to_text(entry->value);
  return "# " + key + " = " + (initial != nullptr ? to_text(*initial) : "...");
}

std::string text_of(const config::Document& document) {
  std::string text =
      "# A run of lockstep. `lockstep config check FILE` finds what is wrong with it, `lockstep\n"
      "# config fields` lists every key there is.\n";
  std::string section;
  for (const char* path : kOffered) {
    const config::Field& field = *spec::run_fields().find(path);
    const std::string own = field.path.substr(0, field.path.find('.'));
    if (own != section) text += join_parts("\n[", own, "]\n");
    section = own;
    const std::string line = line_of(field, document);
    const std::size_t column = std::max<std::size_t>(28, line.size() + 2);
    text += line + std::string(column - line.size(), ' ') + "# " + config::brief(field) + "\n";
  }
  return text;
}

// What the command line says, and a batch where it says none.
std::optional<config::Document> document_of(const Args& args, config::Report& report) {
  const auto model = model::find_model(args.text("model"), report);
  if (!model) return std::nullopt;
  config::Document document;
  const auto set = [&](const std::string& assignment) {
    config::apply_override(assignment, document, report);
  };
  set("model.name=" + args.text("model"));
  set(join_parts("batch.seq=", std::min(model->max_positions, kLongest)));
  set(join_parts("batch.global_batch=", kSequences));
  if (args.has("data")) set("data.files=" + Json::list(args.texts("data")).dump());
  for (const std::string& assignment : args.texts("set")) set(assignment);
  return document;
}

Result<ExitCode> run_init(const Args& args, Output& output) {
  const std::string name = args.has("FILE") ? args.text("FILE") : "run.toml";
  if (std::filesystem::exists(std::filesystem::symlink_status(name)))
    return Error{Code::kConflict, join_parts("`", name, "` is there already"),
                 "name another file, or remove it first"};
  config::Report report;
  const auto asked = document_of(args, report);
  if (asked) config::check(*asked, spec::run_fields(), report);
  if (!asked || !report.ok()) return fail(output, report, "the command line");
  for (const std::string& assignment : args.texts("set")) {
    const std::string path = assignment.substr(0, assignment.find('='));
    if (std::ranges::find(kOffered, path) == std::end(kOffered) &&
        spec::run_fields().find(path) != nullptr)
      return Error{Code::kBadOptionValue, join_parts("init has no line for `", path, "`"),
                   "write it into the file that init makes"};
  }
  const std::string text = text_of(*asked);
  const auto read = config::parse_document(text, name, config::Format::kToml, report);
  const auto spec = read ? spec::read_spec(*read, report) : std::nullopt;
  if (spec)
    for (const Error& error :
         spec::legal(spec->model, spec->layout, spec->batch, spec->train.dtype))
      report.add(error);
  if (!spec || !report.ok()) return fail(output, report, "the command line");
  LS_TRY(write_text(name, text));
  const std::string command = join_parts("lockstep train ", name,
                                         spec->data.files.empty() ? " --mock-data" : " --save out");
  if (output.json)
    return print_json(
        output,
        Json::object({{"schema", "lockstep.init/1"}, {"written", name}, {"next", command}}));
  output.out << "wrote " << name << "\n" << to_text(*spec) << "\n\nnext: " << command << '\n';
  return ExitCode::kOk;
}

}  // namespace

Verb init_verb() {
  return {.name = "init",
          .summary = "Write a run file, with comments, to begin with",
          .description =
              "Every key that is set most has a line; those that neither an option nor --set names "
              "are comments with their defaults. Nothing is written over, and nothing is written "
              "that would not run.",
          .examples = {{"lockstep init run.toml --model llama-tiny", "a small model, one rank"},
                       {"lockstep init run.toml --model gpt2 --dp 2 --zero 3 --data build/text",
                        "two ranks that share parameters, on files of tokens"}},
          .options = grouped(
              {{"Options",
                {text("model", "NAME", "A known model (`lockstep model --list`) or a model file")
                     .initially("llama-tiny"),
                 text("data", "PREFIX", "Token files to train on").repeats()}},
               {"Over the defaults", run_file_options()}}),
          .positionals = {{.name = "FILE",
                           .help = "What to write [default: run.toml]",
                           .required = false}},
          .run = run_init};
}

}  // namespace lockstep::cli

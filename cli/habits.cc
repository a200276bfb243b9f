#include "cli/habits.h"

#include <algorithm>
#include <initializer_list>

#include "lockstep/config/suggest.h"
#include "lockstep/spec/spec.h"

namespace lockstep::cli {
namespace {

struct Habit {
  std::initializer_list<std::string_view> words;
  std::string_view instead;
};

const Habit kCommands[] = {
    {{"new", "create", "quickstart"}, "`lockstep init FILE`"},
    {{"run", "start", "pretrain", "fit", "finetune", "sft"}, "`lockstep train FILE`"},
    {{"resume", "continue", "restart"}, "`lockstep train FILE --save DIR --resume`"},
    {{"chat", "infer", "inference", "complete", "sample", "predict"},
     "`lockstep generate DIR --prompt TEXT`"},
    {{"torchrun", "distributed", "spawn", "elastic"}, "`lockstep launch train FILE --save DIR`"},
    {{"version"}, "`lockstep --version`"},
    {{"export", "import", "save", "merge"}, "`lockstep convert FROM TO`"},
    {{"tokenize", "preprocess", "prepare"}, "`lockstep data from-text FILE... --out NAME`"},
    {{"search", "optimize", "autotune", "tune", "recommend", "estimate"}, "`lockstep plan`"},
    {{"profile", "trace"}, "`lockstep train FILE --trace OUT`, or `lockstep calibrate FILE`"},
    {{"validate", "lint", "check"}, "`lockstep config check FILE`"},
    {{"show"}, "`lockstep config show FILE`"},
    {{"models", "list"}, "`lockstep model --list`"},
    {{"clusters", "hardware", "gpus"}, "`lockstep cluster --list`"},
    {{"memory", "flops", "params", "parameters", "summary"}, "`lockstep model NAME`"},
    {{"test", "prove", "compare"}, "`lockstep verify FILE`"},
    {{"draw", "plot", "visualize", "schedule", "schedules"}, "`lockstep simulate --list`"},
    {{"eval", "evaluate"}, "`lockstep train FILE --set train.eval_interval=100`"},
    {{"benchmark"}, "`lockstep bench comm`"},
    {{"info", "env", "diagnose", "collect-env"}, "`lockstep doctor`"},
};

const Habit kOptions[] = {
    {{"output-dir", "out-dir", "checkpoint-dir", "save-dir", "ckpt-dir"}, "--save DIR"},
    {{"save-steps", "save-every", "checkpoint-interval"}, "--save-interval N"},
    {{"resume-from-checkpoint", "load-checkpoint"}, "--load PATH, or --resume with --save DIR"},
    {{"init-from", "pretrained", "pretrained-checkpoint", "finetune"}, "--weights PATH"},
    {{"config", "config-file", "job.config-file", "cfg", "c"},
     "leave the option out: a run file is an argument, `lockstep train FILE`"},
    {{"model", "model-name", "model-name-or-path", "arch"},
     "leave the option out: a run file names its model, and `lockstep init FILE --model NAME` "
     "writes one"},
    {{"gpus", "devices", "num-gpus", "nproc", "nproc-per-node", "num-processes", "world-size"},
     "there are as many ranks as the degrees multiply to: --dp 4 --pp 2 are 8"},
    {{"logging-steps", "log-interval", "log-every"}, "--every N"},
    {{"synthetic-data", "dummy-data", "mock", "fake-data"}, "--mock-data"},
    {{"fp16", "amp"}, "--dtype bf16: fp16 needs loss scaling and offers nothing that bf16 lacks"},
    {{"bf16"}, "--dtype bf16"},
    {{"tensorboard-dir", "logdir", "log-dir", "logging-dir"}, "--metrics DIR"},
    {{"num-train-epochs", "epochs", "num-epochs"}, "--steps N"},
    {{"batch-size", "bs", "b"}, "--global-batch N, the sequences of a step over all ranks"},
    {{"verbose", "v", "debug"}, "leave it out; --json says all that there is to say"},
};

std::string_view find(const Habit* begin, const Habit* end, std::string_view word) {
  for (const Habit* habit = begin; habit != end; ++habit)
    for (const std::string_view known : habit->words)
      if (config::is_within(0, known, word)) return habit->instead;
  return "";
}

}  // namespace

std::string instead_of_command(std::string_view word) {
  const std::string_view known = find(std::begin(kCommands), std::end(kCommands), word);
  return known.empty() ? "" : join_parts("here it is ", known);
}

std::string instead_of_option(const Verb& verb, std::string_view name) {
  const auto has = [&](std::string_view option) {
    return std::ranges::find(verb.options, option, &Option::name) != verb.options.end();
  };
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  for (const Positional& argument : verb.positionals)
    if (config::is_within(0, argument.name, name))
      return join_parts("leave the option out: ", argument.name, " is an argument");
  if (!has("set")) return verb.starts ? instead_of_option(verb.starts(), name) : "";
  const std::string_view known = find(std::begin(kOptions), std::end(kOptions), name);
  if (!known.empty() && !known.starts_with("--")) return std::string(known);
  if (!known.empty() && has(known.substr(2, known.find_first_of(" ,:") - 2)))
    return join_parts("here it is ", known);
  const config::FieldTable& table = spec::run_fields();
  const config::Field* field = table.find_known_as(name);
  for (const config::Field& own : table.fields())
    if (field == nullptr && config::is_within(0, own.path.substr(own.path.rfind('.') + 1), name))
      field = &own;
  if (field == nullptr) return "";
  const auto key = std::ranges::find(verb.options, field->path, &Option::setting);
  return join_parts(
      "here it is --",
      key == verb.options.end() ? join_parts("set ", field->path, "=") : join_parts(key->name, " "),
      "VALUE");
}

}  // namespace lockstep::cli

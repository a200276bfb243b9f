// lockstep launch: starts the ranks of a job, and starts them again when one fails.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "cli/help.h"
#include "cli/launch/snapshots.h"
#include "cli/parse.h"
#include "cli/plan/file.h"
#include "cli/ranks.h"
#include "cli/run_file.h"
#include "cli/verbs.h"
#include "lockstep/base/check.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/launch/channel.h"
#include "lockstep/launch/logs.h"
#include "lockstep/launch/supervisor.h"
#include "lockstep/mesh/mesh.h"
#include "lockstep/spec/spec.h"

namespace lockstep::cli {
namespace {

std::vector<Option> launch_options() {
  return grouped(
      {{"Options",
        {integer("nproc", "N", "Ranks on this host [default: its share of the run file's]")
             .at_least(1),
         integer("max-restarts", "K", "Start the job again at most so often; 0: never")
             .initially("100")
             .at_least(0),
         flag(
             "no-spares",
             "Keep no processes ready that have loaded LibTorch and wait to be ranks of a restart"),
         integer("snapshot-interval", "K",
                 "Copy the state into memory every K steps; a restart begins with the newest copy "
                 "[default: from disk alone]")
             .at_least(1),
         text("snapshot-dir", "DIR", "Where the copies are: a file system in memory")
             .initially("/dev/shm"),
         text("logs", "DIR",
              "What rank N prints goes to DIR/rank-N.log; rank 0 prints here, too")}},
       {"Several hosts",
        {integer("nnodes", "N", "Hosts of the job [default: NNODES, or those of the Slurm step]")
             .at_least(1),
         integer("node-rank", "I",
                 "Number of this host, from 0 [default: NODE_RANK, SLURM_NODEID or "
                 "JOB_COMPLETION_INDEX]")
             .at_least(0),
         text("master-addr", "HOST",
              "Name or address of host 0 [default: MASTER_ADDR, or the first of the Slurm step]"),
         integer("master-port", "PORT",
                 "Where host 0 listens for others [default: MASTER_PORT, by the Slurm job, or "
                 "29500]")
             .between(1, 65535),
         text("service", "NAME", "Headless service of an indexed job of Kubernetes"),
         integer("wait", "SECONDS", "For hosts that have not come, or were lost and may come again")
             .initially("300")
             .at_least(1)}}});
}

// The command that ranks run: what it says, and what it means.
struct Command {
  std::vector<std::string> words;  // with the verb
  Args args;
  spec::Spec spec;
};

Error refuse(const std::string& message, const std::string& help) {
  return {Code::kBadOptionValue, message, help};
}

Result<void> check_options(const Args& train, const Args& launch) {
  if (train.flag("processes"))
    return refuse("`train --processes` starts its ranks itself, as `launch` does",
                  "leave --processes out");
  for (const char* option : {"text", "dry-run"})
    if (train.has(option))
      return refuse(join_parts("`train --", option, "` is for one start, not for ranks"),
                    "`lockstep train` takes it; of a text `lockstep data from-text` makes tokens");
  if (launch.integer("max-restarts") == 0) return {};
  for (const char* option : {"save", "save-interval"})
    if (!train.has(option))
      return refuse(
          join_parts("`train` has no --", option, ": there would be no checkpoint to restart from"),
          join_parts("add --save DIR --save-interval N behind `train`, or write "
                     "--max-restarts 0 in front of it"));
  return {};
}

// Empty: what is wrong was told.
Result<std::optional<Command>> read_command(const Args& launch, Output& output) {
  Command command;
  command.words = launch.texts("COMMAND");
  if (command.words.front() != "train")
    return refuse(join_parts("`launch` starts `train`, not `", command.words.front(), "`"),
                  "lockstep launch [OPTIONS] train run.toml --save DIR --save-interval N");
  std::vector<std::string> words(command.words.begin() + 1, command.words.end());
  const Common common = take_common(words);
  if (common.version)
    return refuse("--version behind `train` is not for ranks", "lockstep --version");
  command.args = LS_TRY(parse_args(train_verb(), "train", words, variable));
  LS_TRY(check_options(command.args, launch));
  config::Report report;
  auto document = load_run(command.args, report);
  if (document) document = with_plan(command.args, *std::move(document), report);
  auto spec = document ? spec::read_spec(*document, report) : std::nullopt;
  if (!spec || !report.ok()) {
    fail(output, report, subject_of(command.args));
    return std::optional<Command>();
  }
  command.spec = *std::move(spec);
  return std::optional(std::move(command));
}

std::optional<int> given(const Args& args, const char* name) {
  return args.has(name) ? std::optional(static_cast<int>(args.integer(name))) : std::nullopt;
}
std::optional<std::string> given_text(const Args& args, const char* name) {
  return args.has(name) ? std::optional(args.text(name)) : std::nullopt;
}

// How many ranks this host has: the same number as all others unless --nproc says otherwise.
Result<int> ranks_here(const Args& launch, const launch::Host& host, int world) {
  const auto nproc = given(launch, "nproc");
  const int ranks = nproc.value_or(world / host.hosts);
  if (host.hosts == 1 ? ranks == world : nproc || world % host.hosts == 0) return ranks;
  if (host.hosts == 1)
    return refuse(join_parts("--nproc ", ranks, ", but the run file has ", counted(world, "rank")),
                  join_parts("--nproc ", world, ", or --set layout.dp=... behind `train`"));
  return refuse(join_parts(counted(world, "rank"), " cannot be shared evenly by ",
                           counted(host.hosts, "host")),
                "--nproc N says how many are on this one");
}

std::int64_t newest_in(const std::string& folder) {
  if (folder.empty() || !std::filesystem::exists(folder)) return -1;
  const auto there = checkpoint::candidates(files::real_disk(), folder);
  if (there.empty()) return -1;
  return checkpoint::step_of(std::filesystem::path(there.front()).filename().string()).value_or(-1);
}

// Where a run began is of no matter once it has a checkpoint of its own.
std::vector<std::string> words_to_resume(const Command& command, bool has_checkpoint) {
  const bool starts_elsewhere = command.args.has("load") || command.args.has("weights");
  if (starts_elsewhere && !has_checkpoint) return command.words;
  std::vector<std::string> words = {command.words.front(), "--resume=auto"};
  for (std::size_t i = 1; i < command.words.size(); ++i) {
    const std::string& word = command.words[i];
    const std::string name = word.substr(0, word.find('='));
    if (word == "--load" || word == "--weights") ++i;
    if (name != "--resume" && name != "--load" && name != "--weights") words.push_back(word);
  }
  return words;
}

Result<std::optional<Snapshots>> make_snapshots(const Args& args, const Command& command,
                                                const launch::Host& host) {
  if (!args.has("snapshot-interval")) return std::optional<Snapshots>();
  if (args.integer("max-restarts") == 0)
    return Error{Code::kConflict, "--snapshot-interval, but --max-restarts is 0",
                 "snapshots are for restarts: leave one of the two out"};
  if (host.hosts > 1)
    return Error{Code::kConflict,
                 join_parts("--snapshot-interval, but there are ", host.hosts, " hosts"),
                 "snapshots lie in the memory of one host; with several hosts, restart from "
                 "--save with a small --save-interval"};
  // Weights and two moments, as a checkpoint has them.
  const std::int64_t width = command.spec.train.dtype == DType::kF64 ? 8 : 4;
  const auto model = LS_TRY(model::describe(command.spec.model));
  Snapshots made =
      LS_TRY(Snapshots::make(args.text("snapshot-dir"), {3 * width * model::count(model).total}));
  return std::optional(std::move(made));
}

Result<ExitCode> run_launch(const Args& args, Output& output) {
  if (auto words = args.texts("COMMAND"); words.front() == "train" && take_common(words).help) {
    output.out << verb_help(train_verb(), "train", output.width, output.colour);
    return ExitCode::kOk;
  }
  const auto command = LS_TRY(read_command(args, output));
  if (!command) return ExitCode::kUsage;
  const spec::Layout& layout = command->spec.layout;
  const mesh::Mesh mesh = LS_TRY(mesh::Mesh::create(layout.degrees, layout.order));
  launch::HostJob job;
  job.host = LS_TRY(launch::find_host({.hosts = given(args, "nnodes"),
                                       .number = given(args, "node-rank"),
                                       .port = given(args, "master-port"),
                                       .coordinator = given_text(args, "master-addr"),
                                       .service = given_text(args, "service")},
                                      comm::process_environment, launch::own_name()));
  job.ranks = LS_TRY(ranks_here(args, job.host, mesh.world()));
  if (args.has("logs")) LS_TRY(launch::Logs::check(job.logs = args.text("logs")));
  job.policy.hosts = job.host.hosts;
  job.policy.ranks = mesh.world();
  job.policy.max_restarts = static_cast<int>(args.integer("max-restarts"));
  job.policy.wait = {static_cast<double>(args.integer("wait"))};
  job.policy.address = job.host.coordinator;
  const std::string save = command->args.has("save") ? command->args.text("save") : "";
  const auto snapshots = LS_TRY(make_snapshots(args, *command, job.host));
  if (snapshots)
    job.environment = {
        join_parts(launch::kSnapshots, "=", snapshots->path()),
        join_parts(launch::kSnapshotInterval, "=", args.integer("snapshot-interval"))};
  job.policy.newest_checkpoint = [&] {
    return std::max(newest_in(save), newest_in(snapshots ? snapshots->path() : ""));
  };
  job.secret = comm::process_environment(launch::kSecret).value_or("");
  job.program = "/proc/self/exe";
  job.has_spares = job.policy.max_restarts > 0 && !args.flag("no-spares");
  std::signal(SIGPIPE, SIG_IGN);  // whoever read what rank 0 prints may leave
  job.words = [&](bool restarts, bool has_checkpoint) {
    return restarts ? words_to_resume(*command, has_checkpoint) : command->words;
  };
  const launch::Verdict verdict =
      launch::run_host(job, as_launcher(), [&](const std::string& text) {
        output.err << join_parts("lockstep: ", text, "\n") << std::flush;
      });
  if (verdict.error) fail(output, *verdict.error);
  return static_cast<ExitCode>(verdict.exit_code);
}

}  // namespace

Verb launch_verb() {
  return {
      .name = "launch",
      .summary = "Start the ranks of a job, and again when one fails",
      .description =
          "Starts the ranks of this host as processes and looks after them. When a rank dies or "
          "fails, all end and the job starts again from its newest checkpoint: at once, and "
          "after a pause that grows when there was no progress; after three restarts without a "
          "newer checkpoint or a later step it ends. What would fail again is not restarted: "
          "a wrong configuration, an unsuitable environment, a loss that diverged. With "
          "several hosts it is started once on each, where host 0 decides for all; "
          "LOCKSTEP_LAUNCH_SECRET is then the same on each and known to nobody else. Ctrl-C, "
          "SIGTERM and SIGHUP end the job as they end `train`: saved, with exit code 143.",
      .examples = {{"lockstep launch train run.toml --save out --save-interval 100",
                    "as many ranks as the run file has, restarted from out/"},
                   {"lockstep launch --logs logs train run.toml --save out --save-interval 100",
                    "the same, with a file for what each rank prints"},
                   {"srun lockstep launch train run.toml --save out --save-interval 9 "
                    "--resume=auto",
                    "on the nodes of a Slurm job, one task on each"}},
      .options = launch_options(),
      .positionals = {{.name = "COMMAND",
                       .help = "`train` and its words, as they would stand behind `lockstep`",
                       .repeated = true,
                       .is_command = true}},
      .run = run_launch,
      .starts = train_verb};
}

}  // namespace lockstep::cli

// lockstep doctor: what this build and this machine can do, tried out rather than assumed.
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <ostream>
#include <thread>
#include <vector>

#include "cli/engine.h"
#include "cli/verbs.h"
#include "lockstep/base/finding.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/comm/local/local.h"

namespace lockstep::cli {
namespace {

using Verdict = Finding::Verdict;

std::vector<Finding> check_machine() {
  const std::int64_t memory = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  const std::string limit =
      files.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(files.rlim_cur);
  Finding open_files{Verdict::kGood, "open files", "the limit is " + limit, ""};
  if (files.rlim_cur < 1024) {
    open_files.verdict = Verdict::kNote;
    open_files.help =
        "a rank of a large job holds one connection per peer; raise it with `ulimit -n 65536`";
  }
  return {{Verdict::kGood, "machine",
           std::to_string(std::thread::hardware_concurrency()) + " cores, " +
               to_text(Bytes{memory}) + " of memory",
           ""},
          open_files};
}

std::vector<Finding> check_torch(bool gpus) {
  const auto engine = load_engine("what computes tensors");
  if (engine.ok()) return gpus ? (*engine)->check_devices() : (*engine)->check();
  return {{Verdict::kProblem, "LibTorch", engine.error().message, engine.error().help}};
}

// Two threads as ranks really add two numbers.
Finding check_local() {
  bool added = true;
  try {
    comm::run_local(2, [&](comm::World& world) {
      const Deadline deadline = Deadline::after(Seconds{20});
      auto group = world.connect_all("doctor", "doctor", deadline);
      std::array<float, 2> data = {1, static_cast<float>(world.rank().value)};
      group->all_reduce({data.data(), 2, DType::kF32, {}}, deadline).wait();
      if (world.rank() == Rank{0}) added = data == std::array<float, 2>{2, 1};
    });
  } catch (const WorldError& error) {
    return {Verdict::kProblem, "local", error.error().message, ""};
  }
  if (!added)
    return {Verdict::kProblem, "local", "an all_reduce between two threads gave a wrong sum", ""};
  return {Verdict::kGood, "local", "an all_reduce between two threads works", ""};
}

// A word and its style.
std::pair<const char*, const char*> look_of(Verdict verdict) {
  if (verdict == Verdict::kGood) return {"ok", style::kGreen};
  return verdict == Verdict::kNote ? std::pair("note", style::kYellow)
                                   : std::pair("problem", style::kRed);
}

void print_text(const std::vector<Finding>& findings, bool healthy, Output& output) {
  constexpr int kIndent = 25;
  output.out << "lockstep " << LOCKSTEP_VERSION << "\n\n";
  for (const Finding& finding : findings) {
    const auto [word, codes] = look_of(finding.verdict);
    output.out << "  " << output.paint(codes, strf("%-8s", word))
               << strf("%-15s", finding.subject.c_str())
               << wrapped(finding.text, kIndent, kIndent, output.width);
    if (!finding.help.empty())
      output.out << wrapped("help: " + finding.help, kIndent, 0, output.width);
  }
  output.out << '\n'
             << (healthy ? "This machine is ready." : "Something is missing; see above.") << '\n';
}

void print_as_json(const std::vector<Finding>& findings, bool healthy, Output& output) {
  print_json(output,
             Json::object({{"schema", "lockstep.doctor/1"},
                           {"version", LOCKSTEP_VERSION},
                           {"torch", LOCKSTEP_WITH_TORCH != 0},
                           {"ready", healthy},
                           {"findings", Json::list(findings, [](const Finding& finding) {
                              return Json::object({{"subject", finding.subject},
                                                   {"verdict", look_of(finding.verdict).first},
                                                   {"text", finding.text},
                                                   {"help", finding.help}});
                            })}}));
}

Result<ExitCode> run_doctor(const Args& args, Output& output) {
  std::vector<Finding> findings = check_machine();
  findings.push_back(check_local());
  for (const bool gpus : {false, true})
    if (!gpus || args.flag("gpu"))
      for (Finding& finding : check_torch(gpus)) findings.push_back(std::move(finding));
  bool healthy = true;
  for (const Finding& finding : findings) healthy = healthy && finding.verdict != Verdict::kProblem;
  if (output.json)
    print_as_json(findings, healthy, output);
  else
    print_text(findings, healthy, output);
  return healthy ? ExitCode::kOk : ExitCode::kEnvironment;
}

}  // namespace

Verb doctor_verb() {
  return {.name = "doctor",
          .summary = "What this build and this machine can do, tried out",
          .description =
              "Looks at the machine and tries the engine: LibTorch, strict kernels, and every "
              "communication backend. Exit code 0 when all of it works, 3 when something is "
              "missing: a build without LibTorch always exits 3.",
          .examples = {{"lockstep doctor", "a line per finding"},
                       {"lockstep doctor --gpu", "whether a job can run on the GPUs"},
                       {"lockstep doctor --json", "the same for a bug report"}},
          .options = {flag("gpu",
                           "Also try the CUDA devices: kernels against the CPU's, an all_reduce "
                           "among all of them. No device is a problem")},
          .run = run_doctor};
}

}  // namespace lockstep::cli

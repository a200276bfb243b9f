// One rank of a trial in f32; tests/train starts as many as the layout needs.
//   train_worker <layout> <steps>                    rank 0 prints the bits of every step
//   train_worker <layout> <steps> late <seed>        the same, computations held up by that seed
//   train_worker <layout> <steps> stop <rank> <op>   that rank stops for good when it first comes
//                                                    to that op, as program::op_token calls it; the
//                                                    others print what they are told

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "lockstep/base/random.h"
#include "lockstep/comm/backends/backends.h"
#include "lockstep/data/mock_tokens.h"
#include "lockstep/program/text.h"
#include "lockstep/verify/trial.h"
#include "tests/train/hooked_workspace.h"
#include "tests/train/tiny.h"

namespace lockstep::train {
namespace {

using Compute = decltype(Hooks::compute);

WorkspaceWrap wrapped(Compute compute) {
  return [compute](exec::Workspace& inner, Rank) -> std::unique_ptr<exec::Workspace> {
    return std::make_unique<HookedWorkspace>(inner, Hooks{.compute = compute});
  };
}

// Up to two milliseconds before every computation, mostly little.
Compute late(std::uint64_t seed, Rank rank) {
  const RandomStream stream(seed, "rank " + std::to_string(rank.value));
  auto number = std::make_shared<std::uint64_t>(0);
  return [=](const program::Op& op, const program::Effects& effects, exec::Workspace& inner) {
    const double drawn = stream.uniform((*number)++);
    std::this_thread::sleep_until(Deadline::after(Seconds{0.002 * drawn * drawn}).point());
    inner.compute(op, effects);
  };
}

// The last progress word that the rank leaves tells of the op.
Compute stop(const Job& job, const std::string& token) {
  return [&job, token](const program::Op& op, const program::Effects& effects,
                       exec::Workspace& inner) {
    if (op_token(job.program.step, op) == token) {
      std::this_thread::sleep_until(Deadline::after(Seconds{0.3}).point());
      std::raise(SIGSTOP);
    }
    inner.compute(op, effects);
  };
}

// The same inside the op, in the collective that so many of its parts are behind: "F2.1:5".
auto stop_inside(const Job& job, const std::string& token) {
  const auto colon = token.find(':');
  return [&job, name = token.substr(0, colon), behind = std::stoi(token.substr(colon + 1))](
             const program::Op& op, int part, bool waits) {
    if (!waits || part != behind || op_token(job.program.step, op) != name) return;
    std::this_thread::sleep_until(Deadline::after(Seconds{0.3}).point());
    std::raise(SIGSTOP);
  };
}

int run(const std::vector<std::string>& arguments) {
  Job job = job_of(tiny_spec(true, DType::kF32), arguments[0]);
  const auto rendezvous = comm::rendezvous_from(comm::process_environment);
  if (!rendezvous.ok()) {
    std::fprintf(stderr, "%s\n", rendezvous.error().message.c_str());
    return 3;
  }
  const auto world = comm::join(DeviceKind::kCpu, *rendezvous, Deadline::after(Seconds{60}));
  std::vector<verify::StepOrder> orders;
  for (int step = 0; step < std::stoi(arguments[1]); ++step) orders.push_back({step, nullptr});
  const data::MockTokens tokens(1, job.model.config.vocab, true);
  WorkspaceWrap wrap;
  const bool stops = arguments.size() > 2 && arguments[2] == "stop";
  if (stops && std::stoi(arguments[3]) == world->rank().value) {
    if (arguments[4].find(':') == std::string::npos)
      wrap = wrapped(stop(job, arguments[4]));
    else
      job.workspace.place = stop_inside(job, arguments[4]);
  } else if (arguments.size() > 2 && !stops)
    wrap = wrapped(late(std::stoull(arguments[3]), world->rank()));
  try {
    const verify::TrialResult trial =
        verify::run_trial_in(*world, "", job, tokens, orders, Seconds{stops ? 3.0 : 60.0}, wrap);
    if (!trial.disagreement.empty()) std::fprintf(stderr, "%s\n", trial.disagreement.c_str());
    if (world->rank() == Rank{0}) std::printf("%s", bits_of(trial.images).c_str());
    return trial.disagreement.empty() ? 0 : 1;
  } catch (const comm::CommError& error) {
    std::printf("culprit %d\n%s\n", error.culprit() ? error.culprit()->value : -1,
                (error.error().message + "\n" + error.error().help).c_str());
    return 4;
  }
}

}  // namespace
}  // namespace lockstep::train

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool sound =
      argc == 3 || (argc == 5 && arguments[2] == "late") || (argc == 6 && arguments[2] == "stop");
  return sound ? lockstep::train::run(arguments) : 2;
}

// lockstep bench comm: how fast a backend's collectives are on this machine, or on the job it is
// started in.
#include <algorithm>
#include <cmath>
#include <ostream>
#include <vector>

#include "cli/engine.h"
#include "cli/ranks.h"
#include "cli/verbs.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/comm/measure.h"
#include "lockstep/comm/rendezvous.h"

namespace lockstep::cli {
namespace {

using comm::Measurement;

const std::vector<comm::OpKind> kOps = {comm::OpKind::kAllGather, comm::OpKind::kReduceScatter,
                                        comm::OpKind::kAllReduce, comm::OpKind::kAllToAll,
                                        comm::OpKind::kBroadcast, comm::OpKind::kSend};

struct Request {
  std::string backend;
  int ranks = 2;
  std::vector<Bytes> sizes;
  Seconds budget;
};

Result<Request> read_request(const Args& args) {
  Request request{args.text("backend"),
                  static_cast<int>(args.integer("ranks")),
                  {},
                  Seconds{args.real("seconds")}};
  const std::string sizes = args.text("sizes");
  const auto refuse = [&](const std::string& what) {
    return Error{Code::kBadOptionValue, "--sizes " + what,
                 "write sizes separated by commas, such as 4KiB,64MiB"};
  };
  for (const std::string_view item : split(sizes, ',')) {
    if (item.empty()) return refuse("`" + sizes + "` lacks a size");
    const Result<Bytes> size = parse_bytes(item);
    if (!size.ok()) return refuse("cannot be read: " + size.error().message);
    if (size->value < 1) return refuse(join_parts("must be above 0, not ", item));
    request.sizes.push_back(*size);
  }
  return request;
}

// Three significant digits.
std::string three_digits(double value) {
  if (!(value > 0)) return "0";
  const int decimals = std::clamp(2 - static_cast<int>(std::floor(std::log10(value))), 0, 8);
  return strf("%.*f", decimals, value);
}

std::vector<Measurement> measure_in(comm::World& world, const Request& request) {
  const Deadline deadline = Deadline::after(Seconds{600});
  auto comm = world.connect_all("bench", "bench", deadline);
  return comm::measure(*comm, world.ledger(), kOps, request.sizes, request.budget, deadline);
}

void report(const Request& request, int ranks, const std::vector<Measurement>& results,
            Output& output) {
  if (output.json) {
    print_json(output, Json::object({{"schema", "lockstep.bench.comm/1"},
                                     {"backend", request.backend},
                                     {"ranks", ranks},
                                     {"results", Json::list(results, [](const Measurement& m) {
                                        return Json::object({{"op", std::string(to_text(m.op))},
                                                             {"bytes", m.bytes.value},
                                                             {"sent_bytes", m.sent.value},
                                                             {"median_s", m.median.value},
                                                             {"bytes_per_s", m.rate()},
                                                             {"repetitions", m.repetitions}});
                                      })}}));
    return;
  }
  output.out << request.backend << ", " << ranks << " ranks, f32, median over repetitions\n\n"
             << "  operation           size        time      GB/s   repeats\n";
  for (const Measurement& m : results)
    output.out << strf("  %-15s %8s  %10s  %8s  %8lld\n", std::string(to_text(m.op)).c_str(),
                       to_text(m.bytes).c_str(), to_text(m.median).c_str(),
                       three_digits(1e-9 * m.rate()).c_str(),
                       static_cast<long long>(m.repetitions));
  output.out << '\n'
             << wrapped(
                    "GB/s is the size of the full buffer over the time, whatever the route; "
                    "send is one way.",
                    0, 0, output.width);
}

ExitCode run(comm::World* world, const Request& request, Output& output) {
  std::vector<Measurement> results;
  run_on_ranks(world, request.ranks, [&](comm::World& own) {
    auto measured = measure_in(own, request);
    if (own.rank() == Rank{0}) results = std::move(measured);
  });
  if (leads(world))
    report(request, world != nullptr ? world->size() : request.ranks, results, output);
  return ExitCode::kOk;
}

Result<ExitCode> run_rank(const comm::Backend& backend, const Request& request, Output& output) {
  const auto rendezvous = LS_TRY(comm::rendezvous_from(comm::process_environment));
  if (rendezvous.world_size < 2)
    return Error{Code::kUnsuitableEnvironment, "a job of one rank has nobody to talk to", ""};
  const auto world = backend.join(rendezvous, Deadline::after(Seconds{60}), {});
  return run(world.get(), request, output);
}

Result<ExitCode> run_processes(const Request& request, Output& output) {
  const auto engine = load_engine("the " + request.backend + " backend");
  if (!engine.ok()) {
    Error error = engine.error();
    error.help += ", or measure --backend local";
    return error;
  }
  const auto rows = (*engine)->backends();
  const auto backend = std::ranges::find(rows, request.backend, &comm::Backend::name);
  if (backend == rows.end() || backend->device != DeviceKind::kCpu) {
    std::string names = "local";
    for (const comm::Backend& row : rows)
      if (row.device == DeviceKind::kCpu) names += join_parts(", ", row.name);
    return Error{Code::kUnknownChoice,
                 "--backend " + request.backend + " does not move host memory", "one of " + names};
  }
  return is_rank() ? run_rank(*backend, request, output) : run_as_processes(request.ranks, output);
}

Result<ExitCode> run_bench_comm(const Args& args, Output& output) {
  const Request request = LS_TRY(read_request(args));
  if (request.backend == "local") return run(nullptr, request, output);
  return run_processes(request, output);
}

}  // namespace

Verb bench_verb(bool with_torch) {
  const Verb comm = {
      .name = "comm",
      .summary = "Time of every collective at several sizes",
      .description =
          "Alone, it starts the ranks itself. Started by torchrun or another launcher (RANK is "
          "set) it joins that job, and rank 0 prints.",
      .examples = {{"lockstep bench comm", "two ranks on this machine"},
                   {"lockstep bench comm --backend local --ranks 8",
                    "eight threads of one process"},
                   {"lockstep bench comm --sizes 4KiB,64MiB --json", "chosen sizes, for a script"}},
      .options = {text("backend", "NAME",
                       with_torch ? "Who moves the bytes: local between threads, or a backend of "
                                    "`lockstep doctor` between processes"
                                  : "Who moves the bytes; this build, without LibTorch, has only "
                                    "local: threads of one process")
                      .initially(with_torch ? "gloo" : "local"),
                  integer("ranks", "N", "How many ranks to start").initially("2").between(2, 64),
                  text("sizes", "LIST", "Sizes of the full buffer, separated by commas")
                      .initially("4KiB,1MiB,64MiB"),
                  real("seconds", "S", "About how long to repeat each operation at each size")
                      .initially("0.5")
                      .between(0, 60)},
      .run = run_bench_comm};
  return {.name = "bench",
          .summary = "Measure this machine",
          .examples = {{"lockstep bench comm", "two ranks on this machine"}},
          .verbs = {comm}};
}

}  // namespace lockstep::cli

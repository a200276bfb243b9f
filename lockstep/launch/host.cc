#include "lockstep/launch/host.h"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/address.h"
#include "lockstep/launch/channel.h"

namespace lockstep::launch {
namespace {

constexpr int kMostHosts = 1 << 16, kUsualPort = 29500;
constexpr std::size_t kShortestSecret = 16;

Error refuse(const std::string& message, const std::string& help) {
  return {Code::kUnsuitableEnvironment, message, help};
}

// What one source said of one thing.
template <class T>
struct Said {
  std::string by;
  T value;
};

// What all sources say of one thing, which must be the same.
template <class T>
class Fact {
 public:
  explicit Fact(std::string what) : what_(std::move(what)) {}

  Result<void> add(const std::string& by, std::optional<T> value) {
    if (!value) return {};
    if (!said_)
      said_ = Said<T>{by, *std::move(value)};
    else if (said_->value != *value)
      return refuse(
          join_parts(what_, " is ", said_->value, " by ", said_->by, " and ", *value, " by ", by),
          join_parts("leave out or unset the wrong one of ", said_->by, " and ", by));
    return {};
  }
  const std::optional<Said<T>>& said() const { return said_; }

 private:
  std::string what_;
  std::optional<Said<T>> said_;
};

struct Facts {
  Fact<int> hosts{"the number of hosts"}, number{"the number of this host"},
      port{"the coordinator's port"};
  Fact<std::string> coordinator{"the coordinator's address"};
};

Result<std::optional<int>> number_of(const comm::Environment& environment, const char* name,
                                     int least, int most) {
  const auto text = environment(name);
  if (!text) return std::optional<int>();
  const auto value = number_in<int>(*text);
  if (value && *value >= least && *value <= most) return value;
  return refuse(
      join_parts(name, " is `", *text, "`, not a whole number from ", least, " to ", most),
      join_parts("correct or unset ", name));
}

Result<void> add_number(Fact<int>& fact, const comm::Environment& environment, const char* name,
                        int least, int most) {
  const std::optional<int> value = LS_TRY(number_of(environment, name, least, most));
  return fact.add(name, value);
}

Result<void> add_torchrun(Facts& facts, const comm::Environment& environment) {
  LS_TRY(add_number(facts.hosts, environment, "NNODES", 1, kMostHosts));
  LS_TRY(add_number(facts.number, environment, "NODE_RANK", 0, kMostHosts - 1));
  LS_TRY(facts.coordinator.add("MASTER_ADDR", environment("MASTER_ADDR")));
  return add_number(facts.port, environment, "MASTER_PORT", 1, 65535);
}

// The address and port that a source implies; another may name them better.
struct Implied {
  std::string coordinator;
  int port = kUsualPort;
  std::string job = "lockstep";
};

Result<void> add_slurm(Facts& facts, Implied& implied, const comm::Environment& environment) {
  const auto job = environment("SLURM_JOB_ID");
  if (!job) return {};
  const auto nodes = LS_TRY(number_of(environment, "SLURM_STEP_NUM_NODES", 1, kMostHosts));
  if (!nodes) {
    const auto allocated = LS_TRY(number_of(environment, "SLURM_NNODES", 1, kMostHosts));
    if (allocated.value_or(1) == 1 || facts.hosts.said()) return {};
    return refuse(join_parts("SLURM_NNODES is ", *allocated,
                             ", but this is no task of a step: it "
                             "would leave all other nodes idle"),
                  "srun --ntasks-per-node=1 lockstep launch ...");
  }
  LS_TRY(facts.hosts.add("SLURM_STEP_NUM_NODES", nodes));
  LS_TRY(add_number(facts.number, environment, "SLURM_NODEID", 0, kMostHosts - 1));
  const auto tasks = LS_TRY(number_of(environment, "SLURM_STEP_NUM_TASKS", 1, 1 << 24));
  if (tasks && *tasks != *nodes)
    return refuse(join_parts("the Slurm step has ", counted(*tasks, "task"), " on ",
                             counted(*nodes, "node"), ", where one launcher a node is meant"),
                  "srun --ntasks-per-node=1 lockstep launch --nproc N ...");
  if (const auto list = environment("SLURM_STEP_NODELIST"))
    implied.coordinator = first_of_nodelist(*list);
  const auto number = number_in<std::int64_t>(*job).value_or(0);
  const auto step = number_in<std::int64_t>(environment("SLURM_STEP_ID").value_or("")).value_or(0);
  implied.port = static_cast<int>(15000 + (number * 7 + step) % 10000);
  implied.job = join_parts("slurm-", *job, ".", step);
  return {};
}

Result<void> add_kubernetes(Facts& facts, Implied& implied, const HostOptions& options,
                            const comm::Environment& environment, const std::string& name) {
  const auto index = LS_TRY(number_of(environment, "JOB_COMPLETION_INDEX", 0, kMostHosts - 1));
  if (!index && options.service)
    return refuse(
        join_parts("--service ", *options.service, ", but JOB_COMPLETION_INDEX is not set"),
        "it is of an indexed job of Kubernetes: completionMode: Indexed");
  if (!index) return {};
  LS_TRY(facts.number.add("JOB_COMPLETION_INDEX", index));
  if (!options.service) return {};
  const std::string end = join_parts("-", *index);
  const std::string pod = name.substr(0, name.find('.'));
  if (!pod.ends_with(end))
    return refuse(join_parts("this pod is called ", pod, ", which does not end with ", end),
                  "name the first pod with --master-addr");
  implied.job = pod.substr(0, pod.size() - end.size());
  implied.coordinator = join_parts(implied.job, "-0.", *options.service);
  return {};
}

Result<void> check_secret(const Host& host, const comm::Environment& environment) {
  const std::size_t size = environment(kSecret).value_or("").size();
  if (host.hosts == 1 || size >= kShortestSecret) return {};
  if (size == 0 && (host.coordinator == "localhost" || comm::is_loopback(host.coordinator)))
    return {};
  return refuse(size == 0 ? join_parts(kSecret, " is not set, and the coordinator at ",
                                       host.coordinator, " can be reached by others")
                          : join_parts(kSecret, " has ", size, " characters, and takes at least ",
                                       kShortestSecret),
                join_parts("export ", kSecret, "=$(openssl rand -hex 32), the same on every host"));
}

}  // namespace

std::string first_of_nodelist(const std::string& list) {
  std::string name;
  for (std::size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      name += list[at];
      continue;
    }
    const std::size_t begin = at + 1, end = list.find_first_of("-,]", begin);
    name += list.substr(begin, end == std::string::npos ? end : end - begin);
    at = std::min(list.find(']', begin), list.size());
  }
  return name;
}

std::string own_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

Result<Host> find_host(const HostOptions& options, const comm::Environment& environment,
                       const std::string& name) {
  if (environment("RANK"))
    return refuse("RANK is set: a launcher has started this process as one rank",
                  "let it start `lockstep train ...` itself, or unset RANK");
  Facts facts;
  Implied implied;
  LS_TRY(facts.hosts.add("--nnodes", options.hosts));
  LS_TRY(facts.number.add("--node-rank", options.number));
  LS_TRY(facts.coordinator.add("--master-addr", options.coordinator));
  LS_TRY(facts.port.add("--master-port", options.port));
  LS_TRY(add_torchrun(facts, environment));
  LS_TRY(add_slurm(facts, implied, environment));
  LS_TRY(add_kubernetes(facts, implied, options, environment, name));
  Host host;
  const auto &hosts = facts.hosts.said(), &number = facts.number.said();
  if (!hosts) {
    if (!number && !options.coordinator && !options.port) return host;
    return refuse(join_parts(number                ? number->by
                             : options.coordinator ? "--master-addr"
                                                   : "--master-port",
                             " is given, but nothing says of how many hosts"),
                  "--nnodes N or NNODES");
  }
  if (!number && hosts->value > 1)
    return refuse(
        join_parts(hosts->by, " is ", hosts->value, ", but nothing says which host this is"),
        "--node-rank I or NODE_RANK");
  if (number && number->value >= hosts->value)
    return refuse(
        join_parts(number->by, " is ", number->value, " of ", counted(hosts->value, "host")),
        "hosts are numbered from 0");
  if (hosts->value == 1) return host;
  host.hosts = hosts->value;
  host.number = number->value;
  host.coordinator =
      facts.coordinator.said() ? facts.coordinator.said()->value : implied.coordinator;
  if (host.coordinator.empty())
    return refuse("nothing says where host 0 is",
                  "--master-addr HOST or MASTER_ADDR; on Kubernetes --service NAME");
  host.port =
      static_cast<std::uint16_t>(facts.port.said() ? facts.port.said()->value : implied.port);
  host.job = implied.job;
  LS_TRY(check_secret(host, environment));
  return host;
}

}  // namespace lockstep::launch

#include "lockstep/comm/rendezvous.h"

#include <cstdlib>

#include "lockstep/base/check.h"
#include "lockstep/base/text.h"

namespace lockstep::comm {
namespace {

Error refuse(const std::string& message) {
  return {Code::kUnsuitableEnvironment, message,
          "start the processes with torchrun or another launcher that sets RANK, WORLD_SIZE, "
          "MASTER_ADDR and MASTER_PORT"};
}

Result<int> whole_number(const Environment& environment, const char* name, int least, int most) {
  const auto text = environment(name);
  if (!text) return refuse(std::string(name) + " is not set");
  const auto value = number_in<int>(*text);
  if (!value || *value < least || *value > most)
    return refuse(
        join_parts(name, " is '", *text, "', not a whole number from ", least, " to ", most));
  return *value;
}

}  // namespace

Result<Rendezvous> rendezvous_from(const Environment& environment) {
  const auto size = LS_TRY(whole_number(environment, "WORLD_SIZE", 1, 1 << 24));
  const auto rank = LS_TRY(whole_number(environment, "RANK", 0, size - 1));
  const auto port = LS_TRY(whole_number(environment, "MASTER_PORT", 1, 65535));
  const auto host = environment("MASTER_ADDR");
  if (!host || host->empty()) return refuse("MASTER_ADDR is not set");
  Rendezvous found{Rank{rank}, size, *host, static_cast<std::uint16_t>(port),
                   environment("TORCHELASTIC_USE_AGENT_STORE") == "True"};
  if (found.rank == Rank{0} && environment(kStoreSocket))
    found.store_socket = LS_TRY(whole_number(environment, kStoreSocket, 0, 1 << 20));
  return found;
}

Result<void> check_alone(const Environment& environment) {
  for (const char* name : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) {
    const auto tasks = environment(name);
    if (!tasks || !environment("SLURM_PROCID") || environment("RANK")) continue;
    if (*tasks == "1") return {};
    return Error{
        Code::kUnsuitableEnvironment,
        std::string(name) + " is " + *tasks + ", but RANK is not set: every task would train alone",
        "start one task and let it start its ranks: srun --ntasks=1 lockstep train ... "
        "--processes; or give every task its place: export MASTER_ADDR=<first host> "
        "MASTER_PORT=29500; srun bash -c 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS "
        "exec lockstep train ...'"};
  }
  return {};
}

std::optional<std::string> process_environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

}  // namespace lockstep::comm

#include "lockstep/comm/c10d/process_world.h"

#include <sys/resource.h>

#include <csignal>
#include <random>
#include <sstream>

#include "lockstep/base/check.h"
#include "lockstep/comm/address.h"

namespace lockstep::comm {
namespace {

constexpr const char* kLifelineKey = "join/lifeline";

CommError unreachable(const std::string& what, const std::exception& cause) {
  std::string text = cause.what();
  return CommError({Code::kStoreLost, what + ": " + text.substr(0, text.find('\n')),
                    "check that every rank was started and that MASTER_ADDR and MASTER_PORT are "
                    "those of rank 0; GLOO_SOCKET_IFNAME names another network interface"},
                   OpKind::kBarrier, {});
}

// c10d aborts or hangs where descriptors run out, so as many as may be used are, and enough must
// be.
void make_room_for_sockets(int world) {
  rlimit files = {};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  // Rank 0 has three of the store and a lifeline from every rank; groups overlap in four axes at
  // most.
  const rlim_t needed = 64 + 8 * static_cast<rlim_t>(world);
  if (files.rlim_max < needed)
    throw WorldError({Code::kUnsuitableEnvironment,
                      join_parts("a rank of ", world, " may open ", files.rlim_max,
                                 " files and sockets, and may need ", needed),
                      join_parts("`ulimit -n ", needed, "` before the ranks start")});
}

}  // namespace

ProcessWorld::ProcessWorld(const Rendezvous& rendezvous, Deadline deadline,
                           const JoinOptions& options)
    : rendezvous_(rendezvous), stop_(options.stop) {
  // c10d writes to sockets whose other end may be gone and counts on the error, as Python programs
  // do.
  struct sigaction action = {};
  if (::sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL)
    std::signal(SIGPIPE, SIG_IGN);
  make_room_for_sockets(rendezvous.world_size);
  try {
    join(deadline, options);
  } catch (const WorldError&) {
    throw;
  } catch (const std::exception& cause) {
    throw unreachable(join_parts("rank ", rendezvous.rank.value, " cannot reach the store at ",
                                 rendezvous.host, ":", rendezvous.port),
                      cause);
  }
}

std::unique_ptr<Communicator> ProcessWorld::connect(std::string name, std::string axis,
                                                    std::vector<Rank> members, Deadline deadline) {
  Membership place = membership(std::move(name), std::move(axis), std::move(members));
  const std::string group = place.name;
  try {
    return connect_group(std::move(place), deadline);
  } catch (const WorldError&) {
    throw;
  } catch (const std::exception& cause) {
    throw unreachable("group " + group + " could not be connected from " + own_address_, cause);
  }
}

void ProcessWorld::check_connecting(Deadline deadline) const {
  check();
  if (stop_ != nullptr && *stop_)
    throw WorldError({Code::kInterrupted, "asked to stop while connecting to the others"});
  if (deadline.expired()) throw std::runtime_error("not all members came in time");
}

void ProcessWorld::join(Deadline deadline, const JoinOptions& options) {
  const bool is_first = rendezvous_.rank == Rank{0};
  if (!is_first || rendezvous_.agent_hosts_store)
    store_ = Store::connect(rendezvous_.host, rendezvous_.port, deadline, stop_, options.tell);
  else if (rendezvous_.store_socket)
    store_ = Store::host(*rendezvous_.store_socket);
  else
    store_ = Store::host(rendezvous_.host, rendezvous_.port);
  own_address_ = route_to(rendezvous_.host);
  Meeting meeting(store_, rendezvous_, deadline, options, [this] { check(); });
  meeting.arrive(own_address_);
  start_board(deadline);
  open_lifeline(meeting, deadline);
  const std::string far = meeting.conclude();
  // A name that means loopback here is not how others reach this host.
  if (!far.empty() && is_loopback(own_address_)) own_address_ = route_to(far);
  watch_others(options);
}

void ProcessWorld::start_board(Deadline deadline) {
  board_ = std::make_shared<ProgressBoard>(
      *store_, rendezvous_, deadline, shared_position(), [this](const Blame& blame) {
        siblings().fail(CommError({blame.is_silent() ? Code::kPeerLost : Code::kPeerStalled,
                                   blame.verdict, "restart the job from its last checkpoint"},
                                  OpKind::kBarrier, blame.rank));
      });
}

void ProcessWorld::open_lifeline(Meeting& meeting, Deadline deadline) {
  const auto lost = [this](Rank rank) { board_->report_death(rank); };
  if (rendezvous_.rank == Rank{0}) {
    std::random_device device;
    const std::uint64_t secret = static_cast<std::uint64_t>(device()) << 32 | device();
    lifeline_ = std::make_unique<Lifeline>(rendezvous_.host, secret, rendezvous_.world_size, lost);
    return meeting.leave(kLifelineKey,
                         join_parts(lifeline_->port(), " ", secret, " ", rendezvous_.world_size));
  }
  std::istringstream text(meeting.await(kLifelineKey));
  std::uint16_t port = 0;
  std::uint64_t secret = 0;
  int ranks = 0;
  text >> port >> secret >> ranks;
  // Rank 0 drops the lifeline of a rank that its job does not have, and would seem dead to it.
  if (rendezvous_.rank.value >= ranks)
    throw CommError({Code::kMismatchedCalls,
                     join_parts("rank ", rendezvous_.rank.value, " of ", rendezvous_.world_size,
                                " has come to a job of ", counted(ranks, "rank"), " at ",
                                rendezvous_.host, ":", rendezvous_.port),
                     "start every rank with the same WORLD_SIZE, and jobs that run side by side "
                     "with a MASTER_PORT of their own"},
                    OpKind::kBarrier, {});
  lifeline_ =
      std::make_unique<Lifeline>(rendezvous_.host, port, secret, rendezvous_.rank, deadline, lost);
}

void ProcessWorld::watch_others(const JoinOptions& options) {
  board_->watch_beats(options.silence, [tell = options.tell](Rank rank, Seconds silence) {
    if (tell)
      tell(join_parts("rank ", rank.value, " has shown no sign of life for ", to_text(silence)));
  });
}

}  // namespace lockstep::comm

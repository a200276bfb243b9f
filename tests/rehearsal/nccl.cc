// In place of libnccl.so.2, between threads of one process: ranks are devices, the last member to
// come moves the data. Sums are in the order of the CPU's backends (comm/tree_sum.h), so that bits
// can be compared. Members whose calls differ, and ranks that issue on two communicators in two
// orders, are told to whoever listens: NCCL itself would hang, or not notice.
//
// Between processes where REHEARSAL_WIRES names a folder, in which every member leaves its part of
// an operation as a file; whoever waits for the operation computes its own result. Where events are
// written down (events.h) members may be processes, too: nothing is moved, and nobody waits.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/comm/tree_sum.h"
#include "tests/glass/order.h"
#include "tests/rehearsal/pending.h"
#include "tests/rehearsal/rehearsal.h"

extern "C" int cudaGetDevice(int* device);

namespace lockstep::rehearsal {
namespace {

constexpr int kSuccess = 0, kInvalidUsage = 5;

// NCCL's numbers of types.
DType dtype_of(int type) {
  switch (type) {
    case 2:
      return DType::kI32;
    case 4:
      return DType::kI64;
    case 6:
      return DType::kF16;
    case 7:
      return DType::kF32;
    case 8:
      return DType::kF64;
    case 9:
      return DType::kBF16;
    default:
      return DType::kU8;
  }
}
std::size_t width_of(int type) { return size_of(dtype_of(type)); }

struct Comm {
  std::string name;
  int rank, size;
  std::int64_t calls = 0;
  std::map<std::pair<int, int>, std::int64_t> messages = {};  // by pair
};
struct Part {
  const void* in;
  void* out;
  std::size_t count;
  int type;
};
struct Operation {
  std::string kind;
  std::size_t count = 0;
  int type = 0;
  std::map<int, Part> parts = {};  // by member
  int issued = 0;                  // parts
  bool is_wrong = false;           // they do not match, and nothing is moved
  bool is_done = false;
};
std::mutex mutex;
std::condition_variable changed;
std::map<std::string, std::shared_ptr<Operation>> operations;
std::map<std::string, std::string> broken;  // why, by communicator

std::string last_error;

bool is_broken(const Comm& comm) { return broken.contains(comm.name); }
void break_it(const Comm& comm, const std::string& why) {
  if (broken.emplace(comm.name, why).second) last_error = why;
}

char* at(const void* data) { return static_cast<char*>(rehearsal_host_view(data)); }

void reduce(const Operation& operation, int members) {
  const bool scatters = operation.kind == "reduce_scatter";
  const std::size_t total = operation.count * (scatters ? members : 1);
  const std::size_t bytes = operation.count * width_of(operation.type);
  std::vector<const void*> inputs;
  for (int m = 0; m < members; ++m) inputs.push_back(at(operation.parts.at(m).in));
  std::vector<char> sum(total * width_of(operation.type));
  comm::tree_sum(inputs, sum.data(), static_cast<std::int64_t>(total), dtype_of(operation.type));
  for (int m = 0; m < members; ++m)
    std::memcpy(at(operation.parts.at(m).out), sum.data() + (scatters ? m * bytes : 0), bytes);
}

void move(const Operation& operation, int members) {
  const std::size_t bytes = operation.count * width_of(operation.type);
  if (operation.kind.starts_with("message")) {
    std::memcpy(at(operation.parts.at(1).out), at(operation.parts.at(0).in), bytes);
  } else if (operation.kind == "all_gather") {
    std::vector<char> all(bytes * members);
    for (int m = 0; m < members; ++m)
      std::memcpy(all.data() + m * bytes, at(operation.parts.at(m).in), bytes);
    for (int m = 0; m < members; ++m)
      std::memcpy(at(operation.parts.at(m).out), all.data(), all.size());
  } else if (operation.kind == "all_to_all") {
    std::vector<std::string> all;
    for (int m = 0; m < members; ++m)
      all.emplace_back(at(operation.parts.at(m).in), bytes * members);
    for (int m = 0; m < members; ++m)
      for (int from = 0; from < members; ++from)
        std::memcpy(at(operation.parts.at(m).out) + from * bytes, all[from].data() + m * bytes,
                    bytes);
  } else {
    reduce(operation, members);
  }
}

// ---- between processes

const char* wires() {
  static const char* const folder = std::getenv("REHEARSAL_WIRES");
  return folder;
}
std::string path_of(const std::string& key, int member) {
  return std::string(wires()) + "/" + key + "." + std::to_string(member);
}
bool have_all_come(const std::string& key, int members) {
  for (int m = 0; m < members; ++m)
    if (!std::filesystem::exists(path_of(key, m))) return false;
  return true;
}
void leave(const std::string& key, int member, const std::string& head, const void* data,
           std::size_t bytes) {
  const std::string path = path_of(key, member);
  std::ofstream file(path + ".tmp", std::ios::binary);
  file << head << '\n';
  if (bytes > 0) file.write(at(data), static_cast<std::streamsize>(bytes));
  file.close();
  std::filesystem::rename(path + ".tmp", path);
}

// What this member gets out of an operation that all have come to; "" or what is wrong.
std::string finish(const std::string& key, const std::string& kind, int member, int members,
                   const Part& part) {
  Operation operation{kind, part.count, part.type};
  std::vector<std::string> inputs(static_cast<std::size_t>(members));
  const std::size_t most = part.count * width_of(part.type) * static_cast<std::size_t>(members);
  std::vector<char> others(most);
  std::string own;
  for (int m = 0; m < members; ++m) {
    std::ifstream file(path_of(key, m), std::ios::binary);
    std::string head;
    std::getline(file, head);
    if (m == 0) own = head;
    if (head != own)
      return "mismatch: " + key + " is " + own + " on one member and " + head + " on another";
    inputs[m].assign(std::istreambuf_iterator<char>(file), {});
    operation.parts[m] = {inputs[m].data(), m == member ? part.out : others.data(), part.count,
                          part.type};
  }
  if (kind.starts_with("message") && member == 0) return "";
  move(operation, members);
  return "";
}

std::shared_ptr<Pending> begin_between_processes(const Comm& comm, const std::string& key,
                                                 const std::string& kind, int member, int members,
                                                 const Part& part, std::size_t in_bytes) {
  const std::string head =
      kind + " of " + std::to_string(part.count) + " elements of type " + std::to_string(part.type);
  leave(key, member, head, part.in, in_bytes);
  const auto is_over = [comm, key, members] {
    const std::lock_guard lock(mutex);
    return is_broken(comm) || have_all_come(key, members);
  };
  const auto wait = [is_over, comm, key, kind, member, members, part,
                     is_done = std::make_shared<bool>(false)] {
    while (!is_over()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::lock_guard lock(mutex);
    if (is_broken(comm) || std::exchange(*is_done, true)) return;
    if (const std::string wrong = finish(key, kind, member, members, part); !wrong.empty())
      break_it(comm, wrong);
  };
  return std::make_shared<Pending>(Pending{is_over, wait});
}

// ---- between threads

std::shared_ptr<Pending> begin_between_threads(const Comm& comm, const std::string& key,
                                               const std::string& kind, int member, int members,
                                               const Part& part) {
  int rank = 0;
  cudaGetDevice(&rank);
  const std::lock_guard lock(mutex);
  std::shared_ptr<Operation>& known = operations[key];
  if (!known) known = std::make_shared<Operation>(Operation{kind, part.count, part.type});
  const std::shared_ptr<Operation> operation = known;
  if (operation->kind != kind || operation->count != part.count || operation->type != part.type) {
    operation->is_wrong = true;
    rehearsal_refused(("mismatch: " + key + " is " + kind + " on rank " + std::to_string(rank) +
                       " and " + operation->kind + " on another")
                          .c_str());
  }
  // A message waits for its peer on a stream of its own beside others (exec/groups.h).
  static glass::Order order;
  if (!kind.starts_with("message"))
    if (const auto why = order.issue(rank, key)) rehearsal_refused(why->c_str());
  operation->parts[member] = part;
  if (!is_broken(comm) && ++operation->issued == members) {
    if (!operation->is_wrong) move(*operation, members);
    operation->is_done = true;
    operations.erase(key);
  }
  changed.notify_all();
  const auto is_over = [operation, comm] { return operation->is_done || is_broken(comm); };
  const auto is_over_now = [is_over] {
    const std::lock_guard held(mutex);
    return is_over();
  };
  const auto wait = [is_over] {
    std::unique_lock held(mutex);
    changed.wait(held, is_over);
  };
  return std::make_shared<Pending>(Pending{is_over_now, wait});
}

// For ever, at the operation of that number, where a test says so: the process lives on.
void stand_still() {
  static const char* const at = std::getenv("REHEARSAL_STALL");
  static std::atomic<int> number = 0;
  while (at != nullptr && number++ == std::atoi(at))
    std::this_thread::sleep_for(std::chrono::hours(1));
}

int issue(const Comm& comm, const std::string& key, const std::string& kind, int member,
          int members, const Part& part, std::size_t in_bytes, std::size_t out_bytes,
          void* stream) {
  stand_still();
  rehearsal_touched((kind + " " + key).c_str(), part.in, in_bytes, part.out, out_bytes, stream);
  const auto pending =
      wires() != nullptr ? begin_between_processes(comm, key, kind, member, members, part, in_bytes)
                         : begin_between_threads(comm, key, kind, member, members, part);
  rehearsal_enqueue(stream, &pending);
  const std::lock_guard lock(mutex);
  return is_broken(comm) ? kInvalidUsage : kSuccess;
}

int collective(Comm* comm, const char* kind, const Part& part, std::size_t in_bytes,
               std::size_t out_bytes, void* stream) {
  if (!rehearsal_has_values()) {
    rehearsal_event("collective", static_cast<std::int64_t>(std::max(in_bytes, out_bytes)),
                    (std::string(kind) + " of " + std::to_string(comm->size)).c_str());
    return kSuccess;
  }
  return issue(*comm, comm->name + " #" + std::to_string(comm->calls++), kind, comm->rank,
               comm->size, part, in_bytes, out_bytes, stream);
}

// A message that is sent (`in`) or received.
struct Message {
  Comm* comm;
  int from, to;
  Part part;
  void* stream;

  std::pair<int, int> pair() const { return std::minmax(from, to); }
  std::string direction() const { return std::to_string(from) + "->" + std::to_string(to); }
};

int begin(const Message& of, const std::string& key) {
  const std::size_t bytes = of.part.count * width_of(of.part.type);
  const bool sends = of.part.in != nullptr;
  if (!rehearsal_has_values()) {
    rehearsal_event("message", static_cast<std::int64_t>(bytes), sends ? "send" : "receive");
    return kSuccess;
  }
  return issue(*of.comm, key, "message " + of.direction(), sends ? 0 : 1, 2, of.part,
               sends ? bytes : 0, sends ? 0 : bytes, of.stream);
}

// Messages that a pair has in a group are one to its order, in whatever directions; else they match
// in the order of issue, in either direction.
thread_local int depth = 0;
thread_local std::vector<Message> grouped;

int begin_group() {
  std::map<std::pair<Comm*, std::pair<int, int>>, std::vector<Message>> by_pair;
  for (const Message& one : std::exchange(grouped, {}))
    by_pair[{one.comm, one.pair()}].push_back(one);
  int result = kSuccess;
  for (const auto& [who, messages] : by_pair) {
    const auto& [comm, pair] = who;
    const std::string key = comm->name + " " + std::to_string(pair.first) + "-" +
                            std::to_string(pair.second) + " #" +
                            std::to_string(comm->messages[pair]++);
    // What a rank sends to itself has both ends here.
    std::map<std::pair<std::string, bool>, int> numbers;
    for (const Message& one : messages) {
      int& number = numbers[{one.direction(), one.part.in != nullptr}];
      const std::string which = " " + one.direction() + " " + std::to_string(number++);
      result = std::max(result, begin(one, messages.size() == 1 ? key : key + which));
    }
  }
  return result;
}

int message(const Message& of) {
  grouped.push_back(of);
  return depth > 0 ? kSuccess : begin_group();
}

struct UniqueId {
  char text[128];
};

}  // namespace

extern "C" {

int ncclGetVersion(int* version) { return *version = 22907, kSuccess; }
int ncclGetUniqueId(UniqueId* id) {
  static int number = 0;
  const std::lock_guard lock(mutex);
  if (wires() != nullptr)
    std::snprintf(id->text, sizeof id->text, "nccl%d-%d", static_cast<int>(getpid()), number++);
  else
    std::snprintf(id->text, sizeof id->text, "nccl%d", number++);
  return kSuccess;
}
// All members wait for each other, as NCCL's do.
int ncclCommInitRankConfig(Comm** comm, int size, UniqueId id, int rank, void* /*config*/) {
  static std::map<std::string, int> met;
  *comm = new Comm{id.text, rank, size};
  if (!rehearsal_has_values()) return kSuccess;
  if (wires() != nullptr) {
    const std::string key = std::string(id.text) + " init";
    leave(key, rank, "", nullptr, 0);
    while (!have_all_come(key, size)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return kSuccess;
  }
  std::unique_lock lock(mutex);
  ++met[id.text];
  changed.notify_all();
  changed.wait(lock, [&] { return met[id.text] == size || is_broken(**comm); });
  return is_broken(**comm) ? kInvalidUsage : kSuccess;
}
int ncclCommInitRank(Comm** comm, int size, UniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, size, id, rank, nullptr);
}
int ncclCommInitRankScalable(Comm** comm, int size, int rank, int /*ids*/, UniqueId* id,
                             void* /*config*/) {
  return ncclCommInitRankConfig(comm, size, *id, rank, nullptr);
}
int ncclCommCount(Comm* comm, int* size) { return *size = comm->size, kSuccess; }
int ncclCommUserRank(Comm* comm, int* rank) { return *rank = comm->rank, kSuccess; }
int ncclCommGetAsyncError(Comm* comm, int* error) {
  const std::lock_guard lock(mutex);
  return *error = is_broken(*comm) ? kInvalidUsage : kSuccess, kSuccess;
}
int ncclCommAbort(Comm* comm) {
  if (comm == nullptr) return kSuccess;  // as NCCL has it
  const std::lock_guard lock(mutex);
  broken.emplace(comm->name, comm->name + " was aborted");
  changed.notify_all();
  return kSuccess;
}
const char* ncclGetErrorString(int /*error*/) { return "an error of the rehearsal's NCCL"; }
// Of whichever communicator, as NCCL has it.
const char* ncclGetLastError(Comm* /*comm*/) {
  static thread_local std::string told;
  const std::lock_guard lock(mutex);
  return (told = last_error).c_str();
}
int ncclAllReduce(const void* in, void* out, std::size_t count, int type, int /*op*/, Comm* comm,
                  void* stream) {
  const std::size_t bytes = count * width_of(type);
  return collective(comm, "all_reduce", {in, out, count, type}, bytes, bytes, stream);
}
int ncclAllGather(const void* in, void* out, std::size_t count, int type, Comm* comm,
                  void* stream) {
  const std::size_t bytes = count * width_of(type);
  return collective(comm, "all_gather", {in, out, count, type}, bytes, bytes * comm->size, stream);
}
int ncclReduceScatter(const void* in, void* out, std::size_t count, int type, int /*op*/,
                      Comm* comm, void* stream) {
  const std::size_t bytes = count * width_of(type);
  return collective(comm, "reduce_scatter", {in, out, count, type}, bytes * comm->size, bytes,
                    stream);
}
int ncclSend(const void* in, std::size_t count, int type, int to, Comm* comm, void* stream) {
  return message({comm, comm->rank, to, {in, nullptr, count, type}, stream});
}
int ncclRecv(void* out, std::size_t count, int type, int from, Comm* comm, void* stream) {
  return message({comm, from, comm->rank, {nullptr, out, count, type}, stream});
}
int ncclAlltoAll(const void* in, void* out, std::size_t count, int type, Comm* comm, void* stream) {
  const std::size_t bytes = count * width_of(type) * comm->size;
  return collective(comm, "all_to_all", {in, out, count, type}, bytes, bytes, stream);
}
int ncclGroupStart() { return ++depth, kSuccess; }
int ncclGroupEnd() { return --depth > 0 ? kSuccess : begin_group(); }

}  // extern "C"

}  // namespace lockstep::rehearsal

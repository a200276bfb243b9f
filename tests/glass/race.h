// Happens-before over the streams of a test device, op by op (Lamport, "Time, Clocks, and the
// Ordering of Events", 1978, as vector clocks). It reports what no event orders, whether or not it
// went wrong this time. Memory that is taken again belongs to its next owner behind what
// the one before did there. Knows no torch: memory is addresses,
// streams are numbers. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace lockstep::glass {

// How many ops of each stream are before a point in time.
using Clock = std::vector<std::uint64_t>;

// Bytes that an op touches. Of strided elements the hull: columns of one matrix that two streams
// write side by side would be reported.
struct Access {
  std::uint64_t begin = 0, end = 0;
  bool writes = false;
};

class Race {
 public:
  int new_stream(std::string name);

  // An op goes to a stream.
  void launch(int stream, const std::string& op, const std::vector<Access>& accesses);
  // What the op that was launched last on the stream makes, which exists only afterwards.
  void also(int stream, const std::string& op, const Access& access);
  std::shared_ptr<Clock> record(int stream);          // an event
  void stream_waits(int stream, const Clock& event);  // the stream's later ops are behind it
  void host_waits(const Clock& event);                // all that this thread launches later, too
  void host_waits_for_stream(int stream);
  bool is_over_for_host(const Clock& event);

  // Memory from its allocation, by ops of `stream`, to its return. While it is used by another
  // stream it may be returned only if that was told (record_stream), or ordered.
  void take(std::uint64_t begin, std::uint64_t bytes, int stream);
  void use_on(std::uint64_t begin, int stream);
  void give(std::uint64_t begin);
  // Which taking the memory at an address is from, of all since the process began; 0: none.
  std::uint64_t taking_of(std::uint64_t address);

  // The host has read or written device memory.
  void host_touches(std::uint64_t address);

  void report(const std::string& why);  // what others have found

  // What this thread runs from here on, for reports: "F of unit 1, microbatch 0"; empty: not told.
  static void say_what_runs(std::string name);

  // For proofs that do not ask for clocks. How many ops a stream was given; the last of them that
  // touched some bytes, whoever owned them; and how often these were touched or returned since
  // watch(), by any stream.
  std::uint64_t tick_of(int stream);
  std::uint64_t last_touch(const Access& bytes, int stream);
  void watch(const std::vector<Access>& bytes);
  int touches_of_watched();

  // Since the last call.
  std::vector<std::string> take_reports();

 private:
  struct Past : Access {
    std::uint64_t tick = 0;
    int stream = 0;
    const std::string* op = nullptr;
  };
  struct Block {
    std::uint64_t end = 0;
    int stream = 0;
    std::uint64_t number = 0;  // of its taking
    std::set<int> used_on = {};
    std::vector<Past> past = {};
  };
  void touch(int stream, const std::string& op, const Access& access);
  void count_touches(std::uint64_t begin, std::uint64_t end);
  void inherit(std::uint64_t begin, Block& block);
  const std::string& name_here(const std::string& op);
  Block* block_at(std::uint64_t address);
  const std::string& name_of(int stream) const { return names_[static_cast<std::size_t>(stream)]; }

  std::mutex mutex_;
  std::uint64_t takings_ = 0;
  std::vector<Clock> streams_;
  std::vector<std::string> names_;
  std::map<std::uint64_t, Block> blocks_;  // by begin
  std::map<std::uint64_t, Block> given_;   // returned memory that nobody has taken since
  std::set<std::string> ops_;              // names that pasts point to
  std::vector<Access> watched_;
  int touches_ = 0;  // of watched_
  std::vector<std::string> reports_;
};

// Of the process.
Race& race();

}  // namespace lockstep::glass

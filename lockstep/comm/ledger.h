// What one rank has sent, by (axis, operation). Logical traffic: what the operation must move,
// whatever route a backend takes, so that it can be predicted to the byte.
//
//   all_gather, reduce_scatter   (n-1)/n of the full buffer
//   all_reduce                   both of the above: 2(n-1)/n of the buffer, padded to a multiple of
//                                n elements
//   all_to_all                   what goes to others
//   send                         the message; recv counts nothing
//   broadcast                    at the root, the buffer once for each other member
//   barrier                      nothing
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "lockstep/base/units.h"

namespace lockstep::comm {

enum class OpKind : std::uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kSend,
  kRecv,
  kBroadcast,
  kBarrier,
};

std::string_view to_text(OpKind op);  // "reduce_scatter"

// Owned by a World, written by its communicators. Any thread may call it.
class Ledger {
 public:
  struct Key {
    std::string axis;  // "tp", "dp", ...: the name the group was connected with
    OpKind op;
    auto operator<=>(const Key&) const = default;
  };
  struct Entry {
    std::int64_t calls = 0;
    Bytes sent;
    bool operator==(const Entry&) const = default;
  };

  void count(const std::string& axis, OpKind op, Bytes sent);

  Entry entry(const std::string& axis, OpKind op) const;  // zero when there was none
  std::map<Key, Entry> entries() const;                   // a consistent copy
  void clear();

 private:
  mutable std::mutex mutex_;
  std::map<Key, Entry> entries_;
};

}  // namespace lockstep::comm

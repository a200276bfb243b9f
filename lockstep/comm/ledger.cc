#include "lockstep/comm/ledger.h"

#include <array>

namespace lockstep::comm {

std::string_view to_text(OpKind op) {
  static constexpr std::array<std::string_view, 8> kNames = {
      "all_gather", "reduce_scatter", "all_reduce", "all_to_all",
      "send",       "recv",           "broadcast",  "barrier"};
  return kNames[static_cast<std::size_t>(op)];
}

void Ledger::count(const std::string& axis, OpKind op, Bytes sent) {
  std::lock_guard lock(mutex_);
  Entry& entry = entries_[{axis, op}];
  ++entry.calls;
  entry.sent += sent;
}

Ledger::Entry Ledger::entry(const std::string& axis, OpKind op) const {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find({axis, op});
  return found == entries_.end() ? Entry{} : found->second;
}

std::map<Ledger::Key, Ledger::Entry> Ledger::entries() const {
  std::lock_guard lock(mutex_);
  return entries_;
}

void Ledger::clear() {
  std::lock_guard lock(mutex_);
  entries_.clear();
}

}  // namespace lockstep::comm

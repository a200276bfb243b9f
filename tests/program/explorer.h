// Runs a program in every order that its ranks and its transport could take, by brute force.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lockstep/program/deadlock.h"

namespace lockstep::program {

// A state is how many ops each list has issued and which messages have arrived; the rules are those
// of a transport with real queues. The k-th Send of a transfer meets its k-th PostRecv, the k-th
// Norm of one list that of the others. Ops that meet nobody are left out, as others cannot notice
// them, and a Wait belongs to the op before it. For three lists at most, and 40 messages.
class Explorer {
 public:
  Explorer(const Program& program, Transport transport) : program_(program), transport_(transport) {
    for (std::size_t list = 0; list < program.lists.size(); ++list) read(list);
    find_queues();
  }

  // What the runs come to. Nothing when they differ, which no program may bring about.
  std::optional<bool> all_end() {
    std::vector<std::uint64_t> frontier = {0};
    std::unordered_set<std::uint64_t> seen = {0};
    bool some_end = false, some_stick = false;
    std::vector<std::uint64_t> nexts;
    while (!frontier.empty()) {
      const std::uint64_t state = frontier.back();
      frontier.pop_back();
      nexts.clear();
      follow(state, nexts);
      if (nexts.empty()) (has_ended(state) ? some_end : some_stick) = true;
      for (const std::uint64_t next : nexts)
        if (seen.insert(next).second) frontier.push_back(next);
    }
    num_states_ = seen.size();
    if (some_end == some_stick) return std::nullopt;
    return some_end;
  }
  std::size_t num_states() const { return num_states_; }

 private:
  static constexpr int kNever = 255;
  // In a state, the messages that have arrived are above the lengths of three lists.
  static constexpr int kCountBits = 8, kFirstMessage = 3 * kCountBits;

  struct Message {
    std::array<std::size_t, 2> list = {};         // of the Send and of the PostRecv
    std::array<int, 2> place = {kNever, kNever};  // in the list
    std::uint64_t behind = 0;                     // messages before it in a queue of either end
  };
  // An op that others can notice, and what must be over before the list goes on.
  struct Step {
    std::uint64_t messages = 0;
    std::pair<int, int> meeting = {-1, 0};  // collective: 0 Norm, 1 tied reduction; which copy
    int message = -1;                       // this end of one
    int end = 0;                            // 0: Send, 1: PostRecv
    Coord peer = {};
  };

  static int issued(std::uint64_t state, std::size_t list) {
    return static_cast<int>(state >> (kCountBits * static_cast<int>(list)) & 255);
  }
  static std::uint64_t bit(int message) { return std::uint64_t{1} << (kFirstMessage + message); }

  void read(std::size_t list) {
    std::map<std::pair<int, int>, int> copies;  // of this end of a transfer
    std::map<std::size_t, int> message_at;
    const auto& ops = program_.lists[list];
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Op& op = ops[i];
      if (op.kind == OpKind::kSend || op.kind == OpKind::kPostRecv) {
        const int end = op.kind == OpKind::kPostRecv;
        message_at[i] = post(list, op.transfer, copies[{op.transfer, end}]++, end);
      } else if (op.kind == OpKind::kWait &&
                 message_at.contains(static_cast<std::size_t>(op.target))) {
        steps_[list].back().messages |= bit(message_at[static_cast<std::size_t>(op.target)]);
      } else if (op.kind == OpKind::kNorm || op.kind == OpKind::kReduceTied) {
        const int kind = op.kind == OpKind::kReduceTied;
        const std::pair meeting(kind, copies[{-1, kind}]++);
        const auto nowhere = std::array{kNever, kNever, kNever};
        meets_at_.emplace(meeting, nowhere).first->second[list] =
            static_cast<int>(steps_[list].size());
        steps_[list].push_back({.meeting = meeting});
      }
    }
  }

  int post(std::size_t list, int transfer, int copy, int end) {
    const auto [found, is_new] =
        number_.emplace(std::pair(transfer, copy), static_cast<int>(messages_.size()));
    if (is_new) messages_.emplace_back();
    Message& message = messages_[static_cast<std::size_t>(found->second)];
    message.list[static_cast<std::size_t>(end)] = list;
    message.place[static_cast<std::size_t>(end)] = static_cast<int>(steps_[list].size());
    const Transfer& row = program_.transfers[static_cast<std::size_t>(transfer)];
    steps_[list].push_back({.messages = transport_ == Transport::kBlocking ? bit(found->second) : 0,
                            .message = found->second,
                            .end = end,
                            .peer = end == 0 ? row.to : row.from});
    return found->second;
  }

  void find_queues() {
    for (std::size_t list = 0; list < steps_.size(); ++list)
      for (std::size_t i = 0; i < steps_[list].size(); ++i)
        for (std::size_t j = 0; j < i; ++j)
          if (steps_[list][i].message >= 0 && steps_[list][j].message >= 0 &&
              share_queue(steps_[list][j], steps_[list][i]))
            messages_[static_cast<std::size_t>(steps_[list][i].message)].behind |=
                bit(steps_[list][j].message);
  }

  bool share_queue(const Step& a, const Step& b) const {
    switch (transport_) {
      case Transport::kOneQueue:
        return true;
      case Transport::kQueuePerPeer:
        return a.peer == b.peer;
      case Transport::kFifoPerDirection:
        return a.peer == b.peer && a.end == b.end;
      default:
        return false;
    }
  }

  // Whether the last op issued keeps the list from going on.
  bool is_held(std::uint64_t state, std::size_t list) const {
    const int last = issued(state, list) - 1;
    if (last < 0) return false;
    const Step& step = steps_[list][static_cast<std::size_t>(last)];
    if ((step.messages & ~state) != 0) return true;
    if (step.meeting.first < 0) return false;
    const auto& places = meets_at_.at(step.meeting);
    for (std::size_t other = 0; other < program_.lists.size(); ++other) {
      const bool is_member = step.meeting.first == 0 || other == home(0) || other == home(1);
      if (is_member && issued(state, other) <= places[other]) return true;
    }
    return false;
  }

  // The list of the embedding, or of the head.
  std::size_t home(int end) const {
    return static_cast<std::size_t>(
        program_.step.coord_of(end == 0 ? 0 : program_.step.head()).value);
  }

  bool has_more(std::uint64_t state, std::size_t list) const {
    return issued(state, list) < static_cast<int>(steps_[list].size());
  }

  bool has_ended(std::uint64_t state) const {
    for (std::size_t list = 0; list < program_.lists.size(); ++list)
      if (has_more(state, list) || is_held(state, list)) return false;
    return true;
  }

  void follow(std::uint64_t state, std::vector<std::uint64_t>& nexts) const {
    for (std::size_t list = 0; list < program_.lists.size(); ++list)
      if (has_more(state, list) && !is_held(state, list))
        nexts.push_back(state + (std::uint64_t{1} << (kCountBits * static_cast<int>(list))));
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      const Message& message = messages_[i];
      if ((state & bit(static_cast<int>(i))) != 0 || (message.behind & ~state) != 0) continue;
      if (issued(state, message.list[0]) > message.place[0] &&
          issued(state, message.list[1]) > message.place[1])
        nexts.push_back(state | bit(static_cast<int>(i)));
    }
  }

  const Program& program_;
  Transport transport_;
  std::array<std::vector<Step>, 3> steps_;  // per list
  std::vector<Message> messages_;
  std::map<std::pair<int, int>, int> number_;  // of a message, by transfer and copy
  std::map<std::pair<int, int>, std::array<int, 3>> meets_at_;  // per list: its place there
  std::size_t num_states_ = 0;
};

}  // namespace lockstep::program

#include "lockstep/program/deadlock.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/program/text.h"

namespace lockstep::program {
namespace {

constexpr std::string_view kTransportNames[] = {"blocking", "one_queue", "queue_per_peer",
                                                "fifo_per_direction", "tagged"};

// Something that several lists, or two queues, must reach: a transfer or a collective.
struct Meeting {
  struct Member {
    std::int32_t coord;
    std::int32_t op;      // index in the pipeline rank's list; -1: it has no such op
    std::int32_t behind;  // meeting before this one in the member's queue; -1: none
  };
  std::vector<Member> members;
};

bool is_transfer(const Op& op) { return op.kind == OpKind::kSend || op.kind == OpKind::kPostRecv; }

// All meetings of a program, and which of them holds each list where.
class Meetings {
 public:
  Meetings(const Program& program, Transport transport) : program_(program), transport_(transport) {
    held_by_.resize(program.lists.size());
    ids_.resize(program.transfers.size() + kNumOpKinds);
    for (std::size_t c = 0; c < program.lists.size(); ++c) add_list(static_cast<std::int32_t>(c));
    for (Meeting& meeting : all_) std::ranges::sort(meeting.members, {}, &Meeting::Member::coord);
  }

  const std::vector<Meeting>& all() const { return all_; }

  // The meeting that must be over before the list goes past op; -1: none.
  std::int32_t held_by(std::int32_t coord, std::int32_t op) const { return held_by_[coord][op]; }

 private:
  void add_list(std::int32_t coord) {
    const auto& list = program_.list({coord});
    std::vector<std::int32_t>& held_by = held_by_[coord];
    std::vector<std::int32_t> meeting_of(list.size(), -1);
    times_.assign(2 * ids_.size(), 0);
    held_by.assign(list.size(), -1);
    queues_.clear();
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Op& op = list[i];
      if (op.kind == OpKind::kWait) {
        const auto target = static_cast<std::size_t>(op.target);
        if (target < i && is_transfer(list[target])) held_by[i] = meeting_of[target];
        continue;
      }
      if (!meets_others(op)) continue;
      const std::int32_t id = meeting(op);
      join(id, coord, static_cast<std::int32_t>(i), op);
      meeting_of[i] = id;
      if (!is_transfer(op) || transport_ == Transport::kBlocking) held_by[i] = id;
    }
  }

  static bool meets_others(const Op& op) {
    return is_transfer(op) || op.group == CommGroup::kTied || op.group == CommGroup::kPipeline ||
           op.group == CommGroup::kDataThenPipeline || op.group == CommGroup::kDataTensorPipeline;
  }

  // Coordinates that op meets, its own included.
  std::vector<std::int32_t> members_of(const Op& op) const {
    if (is_transfer(op)) {
      const Transfer& transfer = program_.transfers[op.transfer];
      return {transfer.from.value, transfer.to.value};
    }
    std::vector<std::int32_t> members;
    if (op.group == CommGroup::kTied) {
      members = {program_.step.coord_of(0).value,
                 program_.step.coord_of(program_.step.head()).value};
      if (members[0] == members[1]) members.pop_back();
    } else {
      for (std::int32_t c = 0; c < program_.step.shape.coords; ++c) members.push_back(c);
    }
    return members;
  }

  // The meeting of this op: of equal ones on a list, the first meets the first of other lists.
  std::int32_t meeting(const Op& op) {
    const std::size_t what = is_transfer(op)
                                 ? static_cast<std::size_t>(op.transfer)
                                 : program_.transfers.size() + static_cast<std::size_t>(op.kind);
    const std::size_t end = op.kind == OpKind::kPostRecv ? 1 : 0;
    const auto time = static_cast<std::size_t>(times_[2 * what + end]++);
    std::vector<std::int32_t>& ids = ids_[what];
    if (time < ids.size()) return ids[time];
    ids.push_back(static_cast<std::int32_t>(all_.size()));
    all_.emplace_back();
    for (const auto member : members_of(op)) all_.back().members.push_back({member, -1, -1});
    return ids.back();
  }

  void join(std::int32_t id, std::int32_t coord, std::int32_t index, const Op& op) {
    std::vector<Meeting::Member>& members = all_[id].members;
    auto self = std::ranges::find(members, coord, &Meeting::Member::coord);
    if (self == members.end()) self = members.insert(self, {coord, -1, -1});
    self->op = index;
    if (!is_transfer(op)) return;
    if (transport_ == Transport::kTagged || transport_ == Transport::kBlocking) return;
    const auto [last, is_first] = queues_.emplace(queue_of(op), id);
    if (!is_first) self->behind = std::exchange(last->second, id);
  }

  // The queue of its pipeline rank that a transfer goes through.
  std::pair<std::int32_t, OpKind> queue_of(const Op& op) const {
    const Transfer& transfer = program_.transfers[op.transfer];
    const Coord peer = op.kind == OpKind::kSend ? transfer.to : transfer.from;
    if (transport_ == Transport::kOneQueue) return {-1, OpKind::kSend};
    if (transport_ == Transport::kQueuePerPeer) return {peer.value, OpKind::kSend};
    return {peer.value, op.kind};
  }

  const Program& program_;
  Transport transport_;
  std::vector<Meeting> all_;
  std::vector<std::vector<std::int32_t>> held_by_;
  // Per transfer, then per kind of collective: its meetings, and how many this list came to so far,
  // at either end.
  std::vector<std::vector<std::int32_t>> ids_;
  std::vector<std::int32_t> times_;
  std::map<std::pair<std::int32_t, OpKind>, std::int32_t> queues_;  // of one list: its last meeting
};

// Kahn, "Topological sorting of large networks", 1962, with each list as one long node of which a
// growing part is out. A meeting is out when all its ends are issued and those before it are out.
class Sort {
 public:
  Sort(const Program& program, const Meetings& meetings)
      : program_(program), meetings_(meetings), issued_(program.lists.size(), 0) {
    const std::size_t count = meetings.all().size();
    is_over_.assign(count, false);
    open_.assign(count, 0);
    followers_.resize(count);
    issue_of_.resize(program.lists.size());
    for (std::size_t c = 0; c < program.lists.size(); ++c)
      issue_of_[c].assign(program.lists[c].size(), -1);
    for (std::size_t id = 0; id < count; ++id) count_needs(static_cast<std::int32_t>(id));
  }

  bool run() {
    for (std::size_t c = 0; c < issued_.size(); ++c) advance(static_cast<std::int32_t>(c));
    for (std::size_t next = 0; next < ready_.size(); ++next) finish(ready_[next]);
    for (std::size_t c = 0; c < issued_.size(); ++c)
      if (is_stuck(static_cast<std::int32_t>(c))) return false;
    return true;
  }

  // An op is issued when its number is below.
  std::int32_t num_issued(std::int32_t coord) const { return issued_[coord]; }
  bool is_over(std::int32_t id) const { return is_over_[id]; }

  // The last op issued holds the list: always for a list that has not ended.
  bool is_stuck(std::int32_t coord) const {
    const std::int32_t last = num_issued(coord) - 1;
    if (last < 0) return false;
    const std::int32_t holder = meetings_.held_by(coord, last);
    return holder >= 0 && !is_over(holder);
  }

 private:
  void count_needs(std::int32_t id) {
    for (const Meeting::Member& member : meetings_.all()[id].members) {
      ++open_[id];
      if (member.op >= 0) issue_of_[member.coord][member.op] = id;
      if (member.behind < 0) continue;
      ++open_[id];
      followers_[member.behind].push_back(id);
    }
  }

  void close_one(std::int32_t id) {
    if (--open_[id] == 0) ready_.push_back(id);
  }

  void advance(std::int32_t coord) {
    const auto end = static_cast<std::int32_t>(program_.lists[coord].size());
    while (issued_[coord] < end && !is_stuck(coord)) {
      const std::int32_t id = issue_of_[coord][issued_[coord]++];
      if (id >= 0) close_one(id);
    }
  }

  void finish(std::int32_t id) {
    is_over_[id] = true;
    for (const std::int32_t follower : followers_[id]) close_one(follower);
    for (const Meeting::Member& member : meetings_.all()[id].members) advance(member.coord);
  }

  const Program& program_;
  const Meetings& meetings_;
  std::vector<std::int32_t> issued_;  // per list: ops issued so far
  std::vector<bool> is_over_;
  std::vector<std::int32_t> open_;  // per meeting: what it still needs
  std::vector<std::vector<std::int32_t>> followers_;
  std::vector<std::vector<std::int32_t>> issue_of_;  // per list and op: the meeting it joins
  std::vector<std::int32_t> ready_;
};

// Follows from a stuck list what it waits for, until the chain comes back to a meeting it knows or
// to a call that is in no list.
class Chain {
 public:
  Chain(const Program& program, const Meetings& meetings, const Sort& sort)
      : program_(program), meetings_(meetings), sort_(sort) {}

  std::string tell() {
    std::int32_t coord = 0;
    while (!sort_.is_stuck(coord)) ++coord;
    std::int32_t id = hold(coord);
    std::vector<std::int32_t> position(meetings_.all().size(), -1);
    while (id >= 0 && position[id] < 0) {
      position[id] = static_cast<std::int32_t>(links_.size());
      id = follow(id);
    }
    const std::int32_t first = id < 0 ? 0 : position[id];
    std::string text = starts_[first];
    for (auto i = static_cast<std::size_t>(first); i < links_.size(); ++i) text += links_[i];
    return id < 0 ? text : text + "; which is where this began";
  }

 private:
  std::string name(std::int32_t coord, std::int32_t op) const {
    return join_parts("op ", op, " (", op_text(program_, {coord}, program_.list({coord})[op]), ")");
  }

  static std::string who(std::int32_t coord) { return "pipeline rank " + std::to_string(coord); }

  // Says where the list waits and returns for what.
  std::int32_t hold(std::int32_t coord) {
    const std::int32_t last = sort_.num_issued(coord) - 1;
    start_ = who(coord) + " waits at " + name(coord, last);
    return meetings_.held_by(coord, last);
  }

  // Adds the link from an unfinished meeting to the next; -1 at a call that nobody makes.
  std::int32_t follow(std::int32_t id) {
    starts_.push_back(start_);
    for (const auto& member : meetings_.all()[id].members) {
      if (member.op < 0) {
        links_.push_back(" for " + who(member.coord) + ", which never makes the matching call");
        return -1;
      }
      if (member.op >= sort_.num_issued(member.coord)) {
        const std::int32_t next = hold(member.coord);
        links_.push_back(" for " + who(member.coord) + ", which has not issued " +
                         name(member.coord, member.op) + " because it waits at " +
                         name(member.coord, sort_.num_issued(member.coord) - 1));
        return next;
      }
    }
    return follow_queue(id);
  }

  std::int32_t follow_queue(std::int32_t id) {
    for (const auto& member : meetings_.all()[id].members) {
      if (member.behind < 0 || sort_.is_over(member.behind)) continue;
      const auto& before = meetings_.all()[member.behind].members;
      const auto self = std::ranges::find(before, member.coord, &Meeting::Member::coord);
      start_ = who(member.coord) + " waits in its queue for " + name(member.coord, self->op);
      links_.push_back("; that transfer is in the queue of " + who(member.coord) + " behind " +
                       name(member.coord, self->op) + ", which waits");
      return member.behind;
    }
    LS_CHECK(false, "meeting ", id, " waits for nothing");
  }

  const Program& program_;
  const Meetings& meetings_;
  const Sort& sort_;
  std::string start_;                // the chain, if it were to begin at the meeting at hand
  std::vector<std::string> starts_;  // per link
  std::vector<std::string> links_;
};

}  // namespace

std::string_view to_text(Transport transport) {
  return kTransportNames[static_cast<std::size_t>(transport)];
}

Result<void> check_deadlock(const Program& program, Transport transport) {
  const Meetings meetings(program, transport);
  Sort sort(program, meetings);
  if (sort.run()) return {};
  return Error{Code::kDeadlock,
               "on a transport of level " + std::string(to_text(transport)) + " " +
                   Chain(program, meetings, sort).tell(),
               "give each wait a place after the calls that its peers wait for, or use a transport "
               "that keeps less order"};
}

}  // namespace lockstep::program

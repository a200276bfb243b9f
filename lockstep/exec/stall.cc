#include "lockstep/exec/stall.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include "lockstep/base/check.h"
#include "lockstep/exec/groups.h"
#include "lockstep/program/effects.h"
#include "lockstep/program/text.h"

namespace lockstep::exec {
namespace {

using comm::Position;
using mesh::Axis;
using program::CommGroup;
using program::Op;
using program::OpKind;
using program::Transfer;

std::string name(Rank rank) { return join_parts("rank ", rank.value); }

bool is_collective_at_once(OpKind kind) {
  return kind == OpKind::kCount || kind == OpKind::kReduceTied || kind == OpKind::kNorm;
}

class Inquiry {
 public:
  Inquiry(const program::Program& program, const mesh::Mesh& mesh,
          std::span<const comm::LastSeen> seen, const PartText& part_text)
      : program_(program), mesh_(mesh), seen_(seen), part_text_(part_text) {}

  RankStatus status(Rank rank) const {
    RankStatus own{.rank = rank};
    const std::optional<Position> at = position(rank);
    const auto& list = program_.list(coord(rank));
    const bool is_here = at && at->evaluates == evaluates();
    const bool is_inside = is_here && at->op < static_cast<std::int32_t>(list.size());
    if (is_inside) own.op = at->op;
    if (last_seen(rank).is_silent)
      own.what = "shows no sign of life" + (is_inside ? ", last at " + where(rank, *at) : "");
    else if (!at)
      own.what = "has not begun";
    else if (!is_here)
      own.what = "is in " + name_of(*at);
    else if (!is_inside)
      own.what = join_parts("has ended ", name_of(*at), " and not begun the next");
    else
      look_at(own, *at, list[at->op]);
    return own;
  }

 private:
  // A rank that takes part in an op, and where in its own list.
  struct Member {
    Rank rank;
    std::int32_t op;
  };

  // Whether the program is an evaluation's: ops of positions in a step are then none of its lists'.
  bool evaluates() const { return program_.step.forward_only; }
  static std::string name_of(const Position& at) {
    return join_parts(at.evaluates ? "the evaluation after step " : "step ", at.step);
  }
  const comm::LastSeen& last_seen(Rank rank) const { return seen_[rank.value]; }
  // What others say of themselves may be anything; outside of the program it is nothing.
  std::optional<Position> position(Rank rank) const {
    const std::optional<Position> at = last_seen(rank).position;
    const auto end = static_cast<std::int32_t>(program_.list(coord(rank)).size());
    const bool is_known = at && (at->op <= end || at->evaluates != evaluates());
    return is_known && at->step >= 0 && at->op >= 0 && at->part >= 0 ? at : std::nullopt;
  }
  Coord coord(Rank rank) const { return mesh_.coord(rank, Axis::kPipeline); }
  std::string text(Rank rank, std::int32_t op) const {
    const Coord at = coord(rank);
    return op_text(program_, at, program_.list(at)[op]);
  }

  // Collectives of tensor and context ranks are parts of computations.
  bool meets_inside(const Op& op) const {
    return (program_.step.tensor_parallel || mesh_.degree(Axis::kContext) > 1) &&
           op.microbatch >= 0 && op.kind != OpKind::kLoad;
  }
  mesh::Axis axis_inside(const Op& op, int part) const {
    return part_text_ ? part_text_(op, part).axis : Axis::kTensor;
  }
  // "F of unit 3, microbatch 1", and what of it is behind the rank, or what it waits in.
  std::string where(Rank rank, const Position& at) const {
    const Op& op = program_.list(coord(rank))[at.op];
    if (!meets_inside(op) || !part_text_ || (at.part == 0 && !at.waits)) return text(rank, at.op);
    if (at.waits) return join_parts(part_text_(op, at.part).text, " in ", text(rank, at.op));
    return join_parts(text(rank, at.op), ", behind ", part_text_(op, at.part - 1).text);
  }

  void look_at(RankStatus& own, Position at, const Op& op) const {
    own.what = "is at " + where(own.rank, at);
    if (!at.waits) return;
    // The op whose end it waits for.
    const std::int32_t acting = op.kind == OpKind::kWait ? op.target : at.op;
    const Op& target = program_.list(coord(own.rank))[acting];
    const std::vector<Member> members = meets_inside(target)
                                            ? group(own.rank, acting, axis_inside(target, at.part))
                                            : members_of(own.rank, acting);
    for (const Member& member : members)
      if (!has_come(member, at, target)) own.waits_for.push_back(member.rank);
    const bool all_came = own.waits_for.empty();
    if (all_came)  // a rank that has stopped may still owe what it has issued
      for (const Member& member : members)
        if (last_seen(member.rank).is_silent) own.waits_for.push_back(member.rank);
    own.what = "waits " + wish(own, target, at, all_came);
  }

  // Whether the member has done its share of what the rank at `own` waits for.
  bool has_come(const Member& member, const Position& own, const Op& target) const {
    const std::optional<Position> at = position(member.rank);
    const bool is_inside = meets_inside(target);
    return at && *at >= Position{own.step, member.op + (is_async(target.kind) ? 1 : 0),
                                 is_inside || is_collective_at_once(target.kind), evaluates(),
                                 is_inside ? own.part : 0};
  }

  std::vector<Member> members_of(Rank rank, std::int32_t op) const {
    const Op& target = program_.list(coord(rank))[op];
    if (target.transfer >= 0) return {other_end(rank, target)};
    std::vector<Member> members = group(rank, op, axes_of(target.group));
    if (target.group == CommGroup::kTied)
      std::erase_if(members, [&](const Member& member) {
        return !program_.step.holds(coord(member.rank), 0) &&
               !program_.step.holds(coord(member.rank), program_.step.head());
      });
    return members;
  }

  Member other_end(Rank rank, const Op& target) const {
    const Transfer& transfer = program_.transfers[target.transfer];
    const bool sends = target.kind == OpKind::kSend;
    const Coord peer = sends ? transfer.to : transfer.from;
    return {mesh_.group(rank, Axis::kPipeline).rank_at(peer.value),
            find(peer, sends ? OpKind::kPostRecv : OpKind::kSend,
                 [&](const Op& op) { return op.transfer == target.transfer; })};
  }

  // The other ranks along the axes.
  std::vector<Member> group(Rank rank, std::int32_t op, mesh::AxisSet axes) const {
    const Op& target = program_.list(coord(rank))[op];
    std::vector<Member> members;
    if (axes.empty()) return members;
    for (const Rank other : mesh_.group(rank, axes).ranks()) {
      if (other == rank) continue;
      const bool is_same_list = coord(other) == coord(rank);
      members.push_back(
          {other, is_same_list ? op : find(coord(other), target.kind, [&](const Op& candidate) {
             return candidate.unit == target.unit;
           })});
    }
    return members;
  }

  // The first such op of a list; the list's end where there is none.
  template <class Holds>
  std::int32_t find(Coord at, OpKind kind, Holds holds) const {
    const auto& list = program_.list(at);
    const auto found =
        std::ranges::find_if(list, [&](const Op& op) { return op.kind == kind && holds(op); });
    return static_cast<std::int32_t>(found - list.begin());
  }

  std::string wish(const RankStatus& own, const Op& target, const Position& at,
                   bool all_came) const {
    if (target.transfer >= 0) return transfer_wish(own, target, at.step, all_came);
    const std::string what = meets_inside(target) ? where(own.rank, at) : text_of(own.rank, target);
    if (own.waits_for.empty())
      return "for " + what + ", in which all members take part and which does not end";
    std::string whom = name(own.waits_for[0]);
    if (own.waits_for.size() > 1) whom += join_parts(" and ", own.waits_for.size() - 1, " more");
    return join_parts("for ", whom, " in ", what,
                      all_came ? ", which it had come to" : ", which it has not come to");
  }

  std::string text_of(Rank rank, const Op& op) const { return op_text(program_, coord(rank), op); }

  std::string transfer_wish(const RankStatus& own, const Op& target, std::int32_t step,
                            bool all_came) const {
    const Member peer = other_end(own.rank, target);
    const Transfer& transfer = program_.transfers[target.transfer];
    const std::string tensor = "the " + transfer_text(transfer);
    if (target.kind == OpKind::kSend)
      return join_parts(
          "for ", name(peer.rank), " to receive ", tensor,
          all_came ? ", which is under way" : ", for which it has not posted the receive");
    const std::string from = join_parts("for ", tensor, ", from ", name(peer.rank));
    if (all_came) return from + ", which has sent it: it is under way";
    return from + ", which " + why_not_sent(peer.rank, transfer, step);
  }

  // The op that makes the tensor, and how far the sender is from it.
  std::string why_not_sent(Rank sender, const Transfer& transfer, std::int32_t step) const {
    const auto& list = program_.list(coord(sender));
    const auto maker = std::ranges::find_if(list, [&](const Op& op) {
      const bool makes = transfer.is_grad
                             ? op.kind == OpKind::kInputGrad || op.kind == OpKind::kBackward
                             : op.kind == OpKind::kForward;
      return makes && op.unit == transfer.unit + (transfer.is_grad ? 1 : 0) &&
             op.microbatch == transfer.microbatch;
    });
    if (maker == list.end()) return "never makes it";
    const Position made = {step, static_cast<int>(maker - list.begin()), false, evaluates()};
    const std::string what = text_of(sender, *maker);
    const std::optional<Position> at = position(sender);
    if (!at || *at < made) return "has not started " + what;
    const bool is_inside = at->op == made.op && at->step == step && at->evaluates == evaluates();
    if (is_inside) return "is still in " + what;
    return "has made it but not sent it";
  }

  const program::Program& program_;
  const mesh::Mesh& mesh_;
  std::span<const comm::LastSeen> seen_;
  const PartText& part_text_;
};

// The way from `start` to a rank that waits for nobody, or until it comes back to itself. The
// nearest such rank, so that a chain is short.
std::vector<Rank> way_from(const std::vector<RankStatus>& ranks, Rank start) {
  const auto of = [&](Rank rank) -> const RankStatus& { return ranks[rank.value]; };
  std::map<Rank, Rank> reached_from = {{start, start}};
  std::deque<Rank> next = {start};
  Rank last = start;
  while (!next.empty()) {
    last = next.front();
    next.pop_front();
    if (of(last).waits_for.empty()) break;
    for (const Rank other : of(last).waits_for)
      if (reached_from.try_emplace(other, last).second) next.push_back(other);
  }
  std::vector<Rank> way = {last};
  while (way.back() != start) way.push_back(reached_from.at(way.back()));
  std::ranges::reverse(way);
  return way;
}

// Neighbours in number that stand alike have one line.
std::string lines(const std::vector<RankStatus>& some) {
  std::string text;
  for (std::size_t i = 0; i < some.size();) {
    std::size_t end = i + 1;
    while (end < some.size() && some[end].what == some[i].what &&
           some[end].rank.value == some[end - 1].rank.value + 1)
      ++end;
    if (!text.empty()) text += "\n";
    text += end - i == 1 ? name(some[i].rank)
                         : join_parts("each of ranks ", some[i].rank.value, " to ",
                                      some[end - 1].rank.value);
    text += " " + some[i].what;
    i = end;
  }
  return text;
}

}  // namespace

StallReport explain_stall(const program::Program& program, const mesh::Mesh& mesh,
                          std::span<const comm::LastSeen> seen, const PartText& part_text) {
  LS_CHECK(static_cast<std::int32_t>(seen.size()) == mesh.world(), seen.size(), " of ",
           mesh.world(), " ranks were looked for");
  const Inquiry inquiry(program, mesh, seen, part_text);
  StallReport report;
  for (std::int32_t r = 0; r < mesh.world(); ++r) report.ranks.push_back(inquiry.status(Rank{r}));
  std::map<Rank, int> held_up;
  for (const RankStatus& own : report.ranks) {
    const Rank end = way_from(report.ranks, own.rank).back();
    const RankStatus& last = report.ranks[end.value];
    const bool waits = !own.waits_for.empty() || own.what.starts_with("waits");
    if (waits && last.waits_for.empty()) ++held_up[end];
  }
  for (const auto& [rank, count] : held_up) report.culprits.push_back(rank);
  std::ranges::stable_sort(report.culprits, std::greater<>(),
                           [&](Rank rank) { return held_up.at(rank); });
  return report;
}

std::string StallReport::chain(Rank rank) const {
  std::string text;
  for (const Rank link : way_from(ranks, rank))
    text += (text.empty() ? "" : "; ") + name(link) + " " + ranks[link.value].what;
  return text;
}

std::string StallReport::table() const { return lines(ranks); }

std::string StallReport::describe_from(Rank rank) const {
  std::vector<RankStatus> links, others;
  const std::vector<Rank> way = way_from(ranks, rank);
  for (const Rank link : way) links.push_back(ranks[link.value]);
  for (const RankStatus& other : ranks)
    if (std::ranges::find(way, other.rank) == way.end()) others.push_back(other);
  return lines(links) + (others.empty() ? "" : "\n" + lines(others));
}

}  // namespace lockstep::exec

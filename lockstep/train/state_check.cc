#include "lockstep/train/state_check.h"

#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/json.h"
#include "lockstep/comm/texts.h"

namespace lockstep::train {
namespace {

// Digests of a piece with its key: pieces of equal bytes do not cancel each other.
std::uint64_t with_key(std::uint64_t key, std::uint64_t digest) {
  const std::uint64_t words[] = {key, digest};
  return xxh3_64(std::as_bytes(std::span(words)));
}

std::string to_text(const CheckFindings& found) {
  const auto piece = [](const PieceDigest& of) {
    return Json::array({to_hex(of.key), to_hex(of.digest), of.name});
  };
  return Json::object(
             {{"faults", Json::list(found.faults)}, {"pieces", Json::list(found.pieces, piece)}})
      .dump();
}

CheckFindings parse_findings(const std::string& text) {
  CheckFindings found;
  const Result<Json> json = Json::parse(text);
  LS_CHECK(json.ok(), "findings of a rank of this version");
  for (const Json& fault : json->find("faults")->items()) found.faults.push_back(fault.as_text());
  for (const Json& piece : json->find("pieces")->items()) {
    const auto number = [&](std::size_t i) {
      return std::stoull(piece.items()[i].as_text(), nullptr, 16);
    };
    found.pieces.push_back({number(0), number(1), piece.items()[2].as_text()});
  }
  return found;
}

}  // namespace

StateCheck::StateCheck(const Job& job, runtime::TensorWorkspace& workspace,
                       const runtime::Place& place, comm::World& world, const std::string& label,
                       Seconds op_deadline)
    : job_(job),
      workspace_(workspace),
      rank_(world.rank()),
      op_deadline_(op_deadline),
      all_(world.connect_all(label + "check", kCheckAxis, Deadline::after(op_deadline))),
      at_rest_(state_pieces(job, workspace, place, rank_, Moment::kAtRest)),
      at_norm_(state_pieces(job, workspace, place, rank_, Moment::kAtNorm)),
      between_(state_pieces(job, workspace, place, rank_, Moment::kBetweenSteps)),
      spot_check_(job, workspace, *all_) {}

void StateCheck::flip(BitFlip::When when) {
  if (!flip_ || flip_->rank != rank_ || flip_->step != step_ || flip_->when != when) return;
  flip_bit(workspace_, *std::exchange(flip_, std::nullopt));
}

void StateCheck::begin_step(std::int64_t step) {
  step_ = step;
  spent_ = {};
  flip(BitFlip::When::kBefore);
}

void StateCheck::at_norm(exec::StepSums& sums) {
  flip(BitFlip::When::kNorm);
  const RealClock clock;
  spot_check_.before(step_);
  if (is_due(step_)) {
    const std::vector<std::uint64_t> digests = digests_of(workspace_, at_norm_);
    compare_at_rest(at_norm_, digests);
    sums.residue = residue_of(at_norm_, digests);
  }
  sums.faults = std::ssize(found_.faults);
  spent_ += clock.now().since_start;
}

// Pieces at rest are some of those at Norm, in the same order.
void StateCheck::compare_at_rest(std::span<const StatePiece> pieces,
                                 const std::vector<std::uint64_t>& now) {
  if (left_.empty() || left_for_ != step_ || writes_ != workspace_.writes()) return;
  std::size_t at = 0;
  for (std::size_t i = 0; i < at_rest_.size(); ++i) {
    while (pieces[at].key() != at_rest_[i].key()) ++at;
    if (now[at] != left_[i])
      found_.faults.push_back(join_parts(name_of(job_, at_rest_[i]), " on rank ", rank_.value,
                                         " changed since the step before had ended"));
  }
}

std::uint64_t StateCheck::residue_of(std::span<const StatePiece> pieces,
                                     const std::vector<std::uint64_t>& digests) {
  std::uint64_t residue = 0;
  found_.pieces.clear();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].copies == 1) continue;
    const std::uint64_t key = pieces[i].key(), digest = with_key(key, digests[i]);
    residue +=
        pieces[i].is_first ? digest * (1 - static_cast<std::uint64_t>(pieces[i].copies)) : digest;
    found_.pieces.push_back({key, digest, {}});
  }
  return residue;
}

void StateCheck::end_step(bool updated) {
  flip(BitFlip::When::kUpdate);
  const RealClock clock;
  if (auto wrong = spot_check_.compare(updated, Deadline::after(op_deadline_)))
    found_.faults.push_back(join_parts(*wrong, ", recomputed on rank ", rank_.value, ", differs"));
  left_.clear();
  if (is_due(step_ + 1)) {
    left_ = digests_of(workspace_, at_rest_);
    left_for_ = step_ + 1;
    writes_ = workspace_.writes();
  }
  spent_ += clock.now().since_start;
}

Error StateCheck::verdict() {
  const Deadline deadline = Deadline::after(op_deadline_);
  for (PieceDigest& of : found_.pieces)
    for (const auto* pieces : {&at_norm_, &between_})
      for (const StatePiece& piece : *pieces)
        if (of.name.empty() && piece.copies > 1 && piece.key() == of.key)
          of.name = name_of(job_, piece);
  std::string said;
  const auto texts = comm::gather_texts(*all_, to_text(found_), deadline);
  if (rank_.value == 0) {
    std::vector<CheckFindings> ranks;
    for (const std::string& text : texts) ranks.push_back(parse_findings(text));
    said = verdict_on(ranks);
  }
  said = comm::share_text(*all_, std::move(said), deadline);
  forget();
  return {Code::kCorruptState, join_parts("in step ", step_ + 1, ": ", said),
          "that step changed nothing; resume from a checkpoint that was checked"};
}

std::optional<Error> StateCheck::check_now() {
  const std::uint64_t residue = residue_of(between_, digests_of(workspace_, between_));
  std::int64_t words[] = {std::ssize(found_.faults),
                          static_cast<std::int64_t>(residue & 0xFFFFFFFF),
                          static_cast<std::int64_t>(residue >> 32)};
  all_->all_reduce({words, 3, DType::kI64, {}}, Deadline::after(op_deadline_)).wait();
  const std::uint64_t sum =
      static_cast<std::uint64_t>(words[1]) + (static_cast<std::uint64_t>(words[2]) << 32);
  if (words[0] == 0 && sum == 0) return std::nullopt;
  return verdict();
}

void StateCheck::forget() {
  found_ = {};
  left_.clear();
}

}  // namespace lockstep::train

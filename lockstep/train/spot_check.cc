#include "lockstep/train/spot_check.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/base/check.h"
#include "lockstep/base/random.h"
#include "lockstep/tensor/as_buffer.h"
#include "lockstep/train/state_pieces.h"

namespace lockstep::train {
namespace {

// What is shown, in this order: before the update gradient and state, behind it the state.
constexpr Holding kShown[] = {Holding::kGradient, Holding::kMaster, Holding::kFirstMoment,
                              Holding::kSecondMoment};
constexpr std::int64_t kBefore = 4, kTensors = 7;
constexpr std::int64_t kHeader = 4;  // words: whether it counts, segment, begin and end

std::int64_t words_of_a_tensor(const Job& job) {
  const auto width = static_cast<std::int64_t>(size_of(wide_type(job.workspace.unit.dtype)));
  return kSpotElements * width / 8;
}

std::int64_t words_of_all(const Job& job) { return kHeader + kTensors * words_of_a_tensor(job); }

// Behind the embedding's parameters lies the state of a head that shares its weight.
model::FlatRange shown_range(const runtime::TensorWorkspace& workspace, int segment) {
  return common(workspace.own_range(segment), {0, workspace.layout(segment).params.back().end()});
}

}  // namespace

std::int64_t spot_check_bytes(const Job& job) {
  return job.mesh.world() > 1 ? 8 * words_of_all(job) : 0;
}

SpotCheck::SpotCheck(const Job& job, const runtime::TensorWorkspace& workspace,
                     comm::Communicator& all)
    : job_(job),
      workspace_(workspace),
      all_(all),
      shown_(static_cast<std::size_t>(words_of_all(job))) {
  const program::StepShape& step = job.program.step;
  const Coord coord = job.place(all.membership().rank()).coord;
  step.for_each_segment(coord, [&](int segment) {
    // A head that shares the embedding's state takes its weight over and computes nothing.
    if (segment == step.head() && step.shares_state()) return;
    if (shown_range(workspace, segment).size() > 0) segments_.push_back(segment);
  });
}

void SpotCheck::write(int segment, const model::FlatRange& part, bool is_after) {
  const std::int64_t words = words_of_a_tensor(job_);
  const std::int64_t at = part.begin - workspace_.own_range(segment).begin;
  for (std::int64_t i = is_after ? 1 : 0; i < kBefore; ++i) {
    const at::Tensor from = tensor_of(workspace_, segment, kShown[i]).narrow(0, at, part.size());
    const std::int64_t slot = is_after ? kBefore + i - 1 : i;
    std::memcpy(shown_.data() + kHeader + slot * words, from.const_data_ptr(),
                static_cast<std::size_t>(from.nbytes()));
  }
}

void SpotCheck::before(std::int64_t step) {
  std::ranges::fill(shown_, 0);
  if (segments_.empty()) return;
  const RandomStream choice(job_.workspace.seed, "spot check of an update");
  const auto at = static_cast<std::uint64_t>(step) * static_cast<std::uint64_t>(2 * all_.size()) +
                  2 * static_cast<std::uint64_t>(all_.index());
  const int segment = segments_[choice.below(segments_.size(), at)];
  const model::FlatRange all = shown_range(workspace_, segment);
  const std::int64_t size = std::min(kSpotElements, all.size());
  const std::int64_t begin =
      all.begin + static_cast<std::int64_t>(
                      choice.below(static_cast<std::uint64_t>(all.size() - size + 1), at + 1));
  shown_[0] = 1;
  shown_[1] = segment;
  shown_[2] = begin;
  shown_[3] = begin + size;
  write(segment, {begin, begin + size}, /*is_after=*/false);
}

std::optional<std::string> SpotCheck::compare(bool updated, Deadline deadline) {
  if (!updated)
    shown_[0] = 0;
  else if (shown_[0] != 0)
    write(static_cast<int>(shown_[1]), {shown_[2], shown_[3]}, /*is_after=*/true);
  if (all_.size() == 1) return recompute(shown_, 0);
  const int next = (all_.index() + 1) % all_.size();
  const int from = (all_.index() + all_.size() - 1) % all_.size();
  std::vector<std::int64_t> seen(shown_.size());
  const Buffer out = {shown_.data(), std::ssize(shown_), DType::kI64, {}};
  comm::Work receives =
      all_.recv({seen.data(), std::ssize(seen), DType::kI64, {}}, from, 0, deadline);
  comm::Work sends = all_.send(out, next, 0, deadline);
  receives.wait();
  sends.wait();
  return recompute(seen, from);
}

std::optional<std::string> SpotCheck::recompute(const std::vector<std::int64_t>& words,
                                                int from) const {
  if (words[0] == 0) return std::nullopt;
  const int segment = static_cast<int>(words[1]);
  const model::FlatRange part = {words[2], words[3]};
  // Of another rank, so not to be trusted as an index.
  if (words[1] < 0 || words[1] >= job_.program.step.num_segments() || part.begin < 0 ||
      part.size() <= 0 || part.size() > kSpotElements || part.end > workspace_.layout(segment).size)
    return join_parts("what rank ", from, " shows of its update");
  const auto type = tensor::scalar_type_of(wide_type(job_.workspace.unit.dtype));
  std::vector<std::int64_t> own = words;
  std::array<at::Tensor, kTensors> of;
  for (std::int64_t i = 0; i < kTensors; ++i)
    of[i] = at::from_blob(own.data() + kHeader + i * words_of_a_tensor(job_), {part.size()},
                          at::TensorOptions(type));
  std::vector<std::uint16_t> rounded(static_cast<std::size_t>(part.size()));
  const bool has_master = job_.workspace.unit.dtype == DType::kBF16;
  const at::Tensor param =
      has_master ? at::from_blob(rounded.data(), {part.size()}, at::TensorOptions(at::kBFloat16))
                 : of[1];
  workspace_.update_piece(segment, part, param, of[0],
                          {of[2], of[3], has_master ? of[1] : at::Tensor()});
  for (std::int64_t i = 1; i < kBefore; ++i)
    if (std::memcmp(of[i].const_data_ptr(), of[kBefore + i - 1].const_data_ptr(),
                    static_cast<std::size_t>(of[i].nbytes())) != 0)
      return join_parts("the update of elements ", part.begin, " to ", part.end, " of the ",
                        to_text(kShown[i]), " of unit ", job_.model.unit_of(segment), " on rank ",
                        from);
  return std::nullopt;
}

}  // namespace lockstep::train

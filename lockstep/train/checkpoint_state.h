// Which part of a job's state a rank saves, and what a checkpoint says of a job besides its
// tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/checkpoint/file_writer.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/train/session.h"

namespace lockstep::train {

// A slice of this rank's own state: elements from `at` on of workspace().state(segment, role), or
// of its router_bias().
struct OwnSlice {
  checkpoint::TypedSlice typed;
  int segment = 0;
  runtime::StateRole role = runtime::StateRole::kParameter;
  std::int64_t at = 0;
  bool is_bias = false;
};
at::Tensor elements_of(const OwnSlice& slice, Session& session);

// What is saved of a segment, weights first.
struct SavedRole {
  runtime::StateRole state;
  checkpoint::Role saved_as;
};
inline constexpr SavedRole kSavedRoles[] = {
    {runtime::StateRole::kParameter, checkpoint::Role::kWeight},
    {runtime::StateRole::kFirstMoment, checkpoint::Role::kFirstMoment},
    {runtime::StateRole::kSecondMoment, checkpoint::Role::kSecondMoment}};

// Of all ranks together every element once: ranks that hold the same share the writing. In the
// order of a file.
std::vector<OwnSlice> own_slices(const Job& job, Session& session);

checkpoint::Facts running_state(Session& session);
// Goes on with it. Averages of a noise scale that this run does not measure are left, and without
// any in the checkpoint they begin anew. Refuses facts that it does not know or cannot read
// (LS0824).
Result<void> set_running_state(Session& session, const checkpoint::Facts& facts);

}  // namespace lockstep::train

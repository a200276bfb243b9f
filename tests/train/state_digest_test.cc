#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>

#include "lockstep/data/mock_tokens.h"
#include "lockstep/model/flat_layout.h"
#include "lockstep/train/session.h"
#include "tests/train/sessions.h"
#include "tests/train/tiny.h"

namespace lockstep::train {
namespace {

using runtime::StateRole;

constexpr std::pair<StateRole, verify::Role> kRoles[] = {
    {StateRole::kParameter, verify::Role::kParameter},
    {StateRole::kFirstMoment, verify::Role::kFirstMoment},
    {StateRole::kSecondMoment, verify::Role::kSecondMoment}};

// The digest of a job that holds the state of `image`, as all of its ranks see it.
std::uint64_t digest_in(const spec::Spec& spec, const std::string& layout,
                        const verify::StepImage& image, std::int64_t updates = 1) {
  const data::MockTokens tokens(1, spec.model.vocab, false);
  const Job job = job_of(spec, layout);
  std::atomic<std::uint64_t> found = 0;
  on_every_rank(job, tokens, [&](comm::World& world, Session& session) {
    for (int unit = 0; unit < job.model.num_units(); ++unit)
      if (job.program.step.holds(session.coord(), unit))
        for (const auto& [state, role] : kRoles)
          session.workspace().load_state(unit, state,
                                         image.at(job.model, unit, role, session.place().tensor));
    session.workspace().set_updates(updates);
    const std::uint64_t digest = session.state_digest();
    if (world.rank() == Rank{0}) found = digest;
    session.state_digest();  // so that nobody is ahead of `found`
    EXPECT_EQ(digest, found.load());
  });
  return found;
}

verify::StepImage some_state(const spec::Spec& spec) {
  const data::MockTokens tokens(1, spec.model.vocab, false);
  const verify::StepOrder order = {0, nullptr};
  return verify::run_trial(job_of(spec, "dp1 zero0 m2"), tokens, {&order, 1}, Seconds{60})
      .images[0];
}

// However one state is cut: copies, shards, tensor ranks with and without sequence parallelism,
// stages.
TEST(StateDigest, IsThatOfTheStateWhateverTheLayout) {
  for (const DType dtype : {DType::kF64, DType::kF32})
    for (const bool tied : {true, false}) {
      const spec::Spec spec = tiny_spec(tied, dtype);
      const verify::StepImage image = some_state(spec);
      const std::uint64_t one = digest_in(spec, "dp1 zero0 m2", image);
      for (const char* layout : {"dp2 zero0 m2", "dp4 zero1 m2", "dp2x2 zero2 m2", "dp4 zero3 m2",
                                 "tp2 dp1 zero0 m2", "tp2 dp2 zero3 m2 nosp", "pp2 dp2 zero1 m2",
                                 "tp2 pp2 dp2 zero3 m2", "tp4 dp2 zero2 m2"})
        EXPECT_EQ(digest_in(spec, layout, image), one) << layout;
    }
}

// A bit of any role anywhere, two elements that change places, and the count of updates.
TEST(StateDigest, ShowsEveryChange) {
  const spec::Spec spec = tiny_spec(true, DType::kF64);
  const verify::StepImage image = some_state(spec);
  std::set<std::uint64_t> seen = {digest_in(spec, "dp2 zero3 m2", image)};
  EXPECT_TRUE(seen.insert(digest_in(spec, "dp2 zero3 m2", image, 2)).second);
  const auto change = [&](std::initializer_list<int> units, verify::Role role,
                          const std::function<void(double*)>& edit) {
    verify::StepImage other = image;
    for (const int unit : units) {
      at::Tensor& tensor = other.segments.at(unit)[static_cast<std::size_t>(role)];
      tensor = tensor.clone();
      edit(tensor.mutable_data_ptr<double>());
    }
    EXPECT_TRUE(seen.insert(digest_in(spec, "dp2 zero3 m2", other)).second) << to_text(role);
  };
  const Job job = job_of(spec, "dp1 zero0 m2");
  const int head = job.model.num_units() - 1;
  const std::int64_t norm =
      model::flat_layouts(job.model)[static_cast<std::size_t>(job.model.order.back())]
          .params[1]
          .offset;
  for (const auto& [state, role] : kRoles) {
    change({0, head}, role, [](double* x) { x[5] = -x[5]; });  // the weight that both have
    change({head}, role, [&](double* x) { x[norm] = std::nextafter(x[norm], 9.0); });
  }
  change({3}, verify::Role::kParameter, [](double* x) { std::swap(x[0], x[1]); });
  change({3}, verify::Role::kFirstMoment, [](double* x) { std::swap(x[0], x[64]); });
  EXPECT_EQ(seen.size(), 10u);
}

}  // namespace
}  // namespace lockstep::train

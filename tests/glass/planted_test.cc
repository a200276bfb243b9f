// Faults planted at every op of programs, at every part of passes and in every call of a
// communicator: each is reported with the names of both ops, or it is proved to make no difference.
// The same tests run on glass and in rehearsal; LOCKSTEP_ALL_MUTANTS=1 takes more layouts.
#include "tests/glass/planted.h"

#include <c10/core/DeviceGuard.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "lockstep/base/check.h"
#include "lockstep/comm/local/local.h"
#include "lockstep/data/mock_tokens.h"
#include "lockstep/exec/groups.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/program/op_table.h"
#include "lockstep/program/text.h"
#include "lockstep/tensor/as_buffer.h"
#include "lockstep/train/session.h"
#include "tests/glass/race.h"
#include "tests/train/families.h"
#include "tests/train/small.h"

namespace lockstep::glass {
namespace {

using program::Op;
using program::OpKind;
using program::Value;
using program::ValueKind;

// Together every kind of op.
struct Tried {
  bool tied;
  const char* layout;
};
constexpr Tried kTried[] = {
    {true, "pp2 dp2 zero3 1f1b m2 mb recompute=full"},
    {false, "dp2x2 zero1 m2 step"},
    {true, "tp2 pp2 dp1 zero0 zb-h1 m4 step"},
    {false, "tp2 dp2 zero2 m2 mb"},
};
std::vector<Tried> tried() {
  std::vector<Tried> all(std::begin(kTried), std::end(kTried));
  if (std::getenv("LOCKSTEP_ALL_MUTANTS") != nullptr)
    for (const char* layout :
         {"dp2x2 zero3 m2 mb", "tp2 dp2 zero3 nosp m2 mb", "pp2 dp2 zero2 interleaved vpp2 m2 mb",
          "pp2 dp1 zero0 zb-h1 m4 step"})
      all.push_back({true, layout});
  return all;
}

train::Job job_of(const Tried& of) {
  spec::Spec spec = train::small_spec(of.tied);
  spec.model.layers = 4;
  spec.device = DeviceKind::kCuda;
  return train::job_of(spec, of.layout);
}

// One of every pipeline rank.
std::vector<Rank> one_of_each_coord(const train::Job& job) {
  std::vector<Rank> ranks;
  std::set<Coord> seen;
  for (int rank = 0; rank < job.mesh.world(); ++rank)
    if (seen.insert(job.place(Rank{rank}).coord).second) ranks.push_back(Rank{rank});
  return ranks;
}

// ---- ops of programs

// What a value of the workspace is made of; of some values nobody outside can tell.
void add_tensors(train::Session& session, const Value& value, std::vector<Used>& to) {
  runtime::TensorWorkspace& workspace = session.workspace();
  if (is_number(value) || value.kind == ValueKind::kTokens || !workspace.holds(value)) return;
  const auto put = [&](const char* what, const at::Tensor& tensor) {
    if (tensor.defined() && tensor.numel() > 0)
      to.push_back({to_text(value) + what, tensor.view({-1})});
  };
  if (value.kind == ValueKind::kOptimizer) {
    put(" m", workspace.state(value.a, runtime::StateRole::kFirstMoment));
    return put(" v", workspace.state(value.a, runtime::StateRole::kSecondMoment));
  }
  try {
    put("", tensor::as_tensor(workspace.buffer(value)));
  } catch (const BrokenInvariant&) {  // several tensors
  }
}

// Whose op does not touch what effects() says that it may.
bool is_idle(train::Session& session, Rank rank, const Op& op) {
  const train::Job& job = session.job();
  const program::StepShape& step = job.program.step;
  switch (op.kind) {
    case OpKind::kForward:  // the head's hands its input on to B,
      return op.unit == step.head();
    case OpKind::kInputGrad:  // the embedding's to W
      return op.unit == 0;
    case OpKind::kReduce:  // in place, of one rank
      return step.zero == 0 && job.mesh.group(rank, exec::axes_of(op.group)).size() == 1;
    case OpKind::kNorm:  // one of the ranks that hold the same piece brings its squares
      return step.zero == 0 ? session.place().data_index() != 0 : session.place().replica != 0;
    case OpKind::kReduceReplicated:
      return session.workspace().replicated_part(op.unit).count == 0;
    case OpKind::kReduceTied: {
      bool is_empty = true;
      for (const int unit : {0, step.head()})
        if (step.holds(session.coord(), unit))
          is_empty = is_empty && session.workspace().tied_part(unit).count == 0;
      return is_empty;
    }
    default:
      return false;
  }
}

class StepOfPlants {
 public:
  StepOfPlants(train::Session& session, Rank rank, OpPlanter& planter)
      : session_(session),
        rank_(rank),
        planter_(planter),
        program_(session.job().program),
        list_(program_.list(session.coord())) {}

  void run(std::int64_t step) {
    before(0);
    session_.step(step, [&](int op) {
      behind(static_cast<std::size_t>(op));
      if (op + 1 < static_cast<int>(list_.size())) before(static_cast<std::size_t>(op) + 1);
    });
  }

 private:
  program::Effects effects(const Op& op) const {
    return program::effects(program_, session_.coord(), op);
  }
  std::vector<Used> tensors(std::initializer_list<const std::vector<Value>*> lists,
                            const std::vector<Value>& but_not = {}) {
    std::set<Value> all;
    for (const auto* values : lists) all.insert(values->begin(), values->end());
    for (const Value& value : but_not) all.erase(value);
    std::vector<Used> made;
    for (const Value& value : all) add_tensors(session_, value, made);
    return made;
  }
  void before(std::size_t i) {
    const Op& op = list_[i];
    const program::Effects now = effects(op);
    std::vector<Used> used;
    std::vector<Value> under_way;
    if (op.kind == OpKind::kWait) {  // which waits; what it uses is under way
      const program::Effects target = effects(list_[static_cast<std::size_t>(op.target)]);
      under_way = target.defines;
      if (list_[static_cast<std::size_t>(op.target)].kind == OpKind::kSend) under_way.clear();
      under_way.insert(under_way.end(), target.mutates.begin(), target.mutates.end());
    } else {
      used = tensors({&now.reads, &now.mutates, &now.kills});
    }
    is_idle_ = is_idle(session_, rank_, op);
    planter_.before(program::op_text(program_, session_.coord(), op),
                    program::op_row(op.kind).words, used, tensors({&now.kills}, under_way));
  }
  void behind(std::size_t i) {
    const program::Effects now = effects(list_[i]);
    planter_.behind(tensors({&now.defines, &now.mutates}), is_idle_);
  }

  train::Session& session_;
  const Rank rank_;
  OpPlanter& planter_;
  const program::Program& program_;
  const std::vector<Op>& list_;
  bool is_idle_ = false;
};

Tallies plant_in_ops(const train::Job& job, Rank rank, Planted kind) {
  Tallies tallies;
  const comm::WorldWrap wires = new_tested_wires();
  const data::MockTokens source(1, job.spec.model.vocab, false);
  race().take_reports();
  comm::run_local(job.mesh.world(), [&](comm::World& host) {
    const auto world = wires(host);
    train::Session session(job, *world, "", source, Seconds{60});
    const auto all = host.connect_all("all", "all", Deadline::after(Seconds{60}));
    all->barrier(Deadline::after(Seconds{60})).wait();
    OpPlanter planter(kind, tensor::torch_device_of(world->device()), tallies);
    for (std::int64_t step = 0; step < 2; ++step)
      host.rank() == rank ? StepOfPlants(session, rank, planter).run(step)
                          : static_cast<void>(session.step(step));
    all->barrier(Deadline::after(Seconds{60})).wait();
  });
  return tallies;
}

class PlantedInOps : public testing::TestWithParam<Planted> {};

TEST_P(PlantedInOps, AreReportedWithTheNamesOfBoth) {
  Tallies tallies;
  for (const Tried& layout : tried()) {
    SCOPED_TRACE(layout.layout);
    const train::Job job = job_of(layout);
    for (const Rank rank : one_of_each_coord(job))
      add(plant_in_ops(job, rank, GetParam()), tallies);
  }
  expect_all_seen(tallies);
}

INSTANTIATE_TEST_SUITE_P(Every, PlantedInOps,
                         testing::Values(Planted::kHostRead, Planted::kMissingWait,
                                         Planted::kMissingWaitBack, Planted::kEarlyFree),
                         [](const auto& tested) {
                           std::string name(to_text(tested.param));
                           std::ranges::replace(name, ' ', '_');
                           return name;
                         });

// ---- calls of communicators

// Steps until every call of one has gone wrong once.
class CallTrial {
 public:
  CallTrial(const train::Job& job, Rank rank, Planted kind) : job_(job), rank_(rank), kind_(kind) {}

  Tallies run() {
    const comm::WorldWrap wires = new_tested_wires();
    const data::MockTokens source(1, job_.spec.model.vocab, false);
    race().take_reports();
    comm::run_local(job_.mesh.world(), [&](comm::World& host) {
      const auto device = wires(host);
      CallPlanter planter(kind_, tensor::torch_device_of(device->device()));
      const bool is_planted = host.rank() == rank_;
      const auto world = is_planted ? planter.wrap(*device) : nullptr;
      train::Session session(job_, world ? *world : *device, "", source, Seconds{60});
      const auto all = host.connect_all("all", "all", Deadline::after(Seconds{60}));
      std::int64_t more = 1;
      for (std::int64_t step = 0; more > 0; ++step) {
        is_planted ? plant(session, planter, step) : static_cast<void>(session.step(step));
        more = is_planted && (!planter.wanted.empty() || planter.active) ? 1 : 0;
        all->all_reduce({&more, 1, DType::kI64, {}}, Deadline::after(Seconds{60})).wait();
      }
      Race::say_what_runs("");
    });
    return tallies_;
  }

 private:
  void plant(train::Session& session, CallPlanter& planter, std::int64_t step) {
    const program::Program& program = job_.program;
    const auto& list = program.list(session.coord());
    const auto begin = [&](std::size_t i) {
      planter.what_runs = program::op_text(program, session.coord(), list[i]);
      Race::say_what_runs(planter.what_runs);
    };
    planter.begin_step();
    begin(0);
    session.step(step, [&](int op) {
      if (list[static_cast<std::size_t>(op)].kind == OpKind::kNorm) planter.host_has_waited();
      judge(planter, step, op);
      if (op + 1 < static_cast<int>(list.size())) begin(static_cast<std::size_t>(op) + 1);
    });
    if (step == 0)
      for (std::size_t i = 0; i < planter.calls.size(); ++i)
        if (can_go_wrong(planter.calls[i])) planter.wanted.insert(static_cast<int>(i));
  }
  bool can_go_wrong(const std::string& call) const {
    return kind_ != Planted::kEarlyReuse || !call.starts_with("send");
  }
  // A fault that has not shown when the op that issued it comes again was not seen.
  void judge(CallPlanter& planter, std::int64_t step, int op) {
    if (!planter.active || !planter.active->is_done) return;
    const CallPlanter::Site site = *planter.active;
    if (since_ != site.number) since_ = site.number, step_ = step, op_ = op;
    const std::vector<std::string> reports = race().take_reports();
    if (reports.empty() && site.proof.empty() && (step == step_ || op < op_)) return;
    Tally& tally =
        tallies_[std::string(to_text(kind_)) + ", " + site.call.substr(0, site.call.find(' '))];
    ++tally.planted;
    const auto names_both = [&](const std::string& report) {
      const bool is_lifetime = report.starts_with("lifetime");
      return report.find(site.what) != std::string::npos &&
             report.find(is_lifetime ? " while " : " what ") != std::string::npos;
    };
    if (std::ranges::any_of(reports, names_both))
      ++tally.reported;
    else if (reports.empty() && !site.proof.empty())
      ++tally.equivalent;
    else
      tally.unseen.push_back(site.call + " in " + site.what +
                             (reports.empty() ? "" : ": " + reports[0]));
    planter.repair();
    race().take_reports();
    race().watch({});
    planter.wanted.erase(site.number);
    planter.active.reset();
    since_ = -1;
  }

  const train::Job& job_;
  const Rank rank_;
  const Planted kind_;
  Tallies tallies_;
  int since_ = -1, op_ = 0;
  std::int64_t step_ = 0;
};

class PlantedInCalls : public testing::TestWithParam<Planted> {};

TEST_P(PlantedInCalls, AreReportedWithTheNamesOfBoth) {
  Tallies tallies;
  for (const Tried& layout : tried()) {
    SCOPED_TRACE(layout.layout);
    const train::Job job = job_of(layout);
    for (const Rank rank : one_of_each_coord(job))
      add(CallTrial(job, rank, GetParam()).run(), tallies);
  }
  expect_all_seen(tallies);
}

INSTANTIATE_TEST_SUITE_P(Every, PlantedInCalls,
                         testing::Values(Planted::kMissingWait, Planted::kMissingWaitBack,
                                         Planted::kEarlyFree, Planted::kEarlyReuse),
                         [](const auto& tested) {
                           std::string name(to_text(tested.param));
                           std::ranges::replace(name, ' ', '_');
                           return name;
                         });

// ---- what ends a job

struct Ended {
  std::string why;     // or what was reported; empty: neither
  std::string proof;   // of the planted call
  std::string digest;  // of the state behind the last step
  std::vector<std::string> calls;
  std::set<int> overtakable;
};

// A few steps in which call `number` of a rank goes wrong; none where it is negative.
Ended run_with(const train::Job& job, Rank rank, Planted kind, int number) {
  const comm::WorldWrap wires = new_tested_wires();
  const data::MockTokens source(1, job.spec.model.vocab, false);
  Ended ended;
  std::mutex mutex;
  try {
    comm::run_local(job.mesh.world(), [&](comm::World& host) {
      const auto device = wires(host);
      CallPlanter planter(kind, tensor::torch_device_of(device->device()));
      const bool is_planted = host.rank() == rank;
      const auto world = is_planted ? planter.wrap(*device) : nullptr;
      try {
        train::Session session(job, world ? *world : *device, "", source, Seconds{60});
        for (std::int64_t step = 0; step < 2; ++step) {
          planter.begin_step();
          if (is_planted && step == 1 && number >= 0) planter.wanted = {number};
          session.step(step);
          if (is_planted && step == 1 && planter.active) ended.proof = planter.active->proof;
          if (is_planted && step == 0)
            ended.calls = planter.calls, ended.overtakable = planter.overtakable;
        }
        const std::uint64_t digest = session.state_digest();
        if (is_planted) ended.digest = std::to_string(digest);
      } catch (const std::exception& failure) {
        const std::lock_guard lock(mutex);
        ended.why += std::string(failure.what()) + "\n";
        throw;
      }
    });
  } catch (const std::exception&) {  // said by the ranks
  }
  for (const std::string& report : race().take_reports()) ended.why += report + "\n";
  return ended;
}

// One call of each kind on each communicator; of those that can change places two.
std::vector<int> sampled(const Ended& sound, Planted kind) {
  std::map<std::string, int> taken;
  std::vector<int> numbers;
  for (int i = 0; i < static_cast<int>(sound.calls.size()); ++i) {
    const std::string& call = sound.calls[static_cast<std::size_t>(i)];
    const bool is_message = call.starts_with("send") || call.starts_with("recv");
    const bool can = kind == Planted::kOrder ? sound.overtakable.contains(i) : is_message;
    if (can && taken[call]++ < (kind == Planted::kOrder ? 2 : 1)) numbers.push_back(i);
  }
  return numbers;
}

void plant_and_end(const train::Job& job, Rank rank, Planted kind, Tallies& tallies) {
  const Ended sound = run_with(job, rank, kind, -1);
  ASSERT_EQ(sound.why, "");
  for (const int number : sampled(sound, kind)) {
    const std::string& call = sound.calls[static_cast<std::size_t>(number)];
    Tally& tally = tallies[std::string(to_text(kind)) + ", " + call.substr(0, call.find(' '))];
    const Ended ended = run_with(job, rank, kind, number);
    ++tally.planted;
    const bool names_both = ended.why.find("order: rank") != std::string::npos ||
                            ended.why.find("mismatch: ") != std::string::npos;
    if (names_both)
      ++tally.reported;
    else if (ended.why.empty() && ended.digest == sound.digest)
      ++tally.equivalent;  // the orders of all ranks agree, and so do all bits
    else
      tally.unseen.push_back(call + ": " + ended.why);
  }
}

TEST(PlantedOrder, IsReportedWithBothOrders) {
  Tallies tallies;
  for (const Tried& layout : tried()) {
    SCOPED_TRACE(layout.layout);
    const train::Job job = job_of(layout);
    plant_and_end(job, Rank{0}, Planted::kOrder, tallies);
  }
  expect_all_seen(tallies);
}

TEST(PlantedDirection, IsReportedWithBothMessages) {
  Tallies tallies;
  for (const Tried& layout : tried()) {
    const train::Job job = job_of(layout);
    if (job.program.step.shape.coords == 1) continue;
    SCOPED_TRACE(layout.layout);
    for (const Rank rank : one_of_each_coord(job))
      plant_and_end(job, rank, Planted::kDirection, tallies);
  }
  expect_all_seen(tallies);
}

}  // namespace
}  // namespace lockstep::glass

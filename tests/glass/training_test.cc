// Training on glass: the bits of the same kernels on CPU tensors, the memory that lists say, no
// race, no host that touches device memory, and a constant number of waits of the host.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "lockstep/comm/local/local.h"
#include "lockstep/data/mock_tokens.h"
#include "lockstep/verify/verify.h"
#include "tests/glass/backend.h"
#include "tests/glass/device.h"
#include "tests/train/families.h"

namespace lockstep::verify {
namespace {

spec::Spec tiny_on_device(DType dtype) {
  spec::Spec spec = train::tiny_spec(/*tied=*/true, dtype);
  spec.device = DeviceKind::kCuda;
  return spec;
}

// On CPU tensors, then on glass, whose bits must be theirs.
void expect_same_on_glass(Verifier& verifier, const std::string& name) {
  const spec::Layout layout = *spec::parse_layout(name);
  const auto on_cpu = verifier.check(layout);
  ASSERT_TRUE(on_cpu.ok()) << name << ": " << on_cpu.error().message;
  // Operators of the CPU take memory of their own.
  EXPECT_TRUE(on_cpu->ok() || on_cpu->failure_kind == FailureKind::kPrediction)
      << name << ": " << on_cpu->failure;
  glass::race().take_reports();
  const glass::Wires wires;
  Fault on_glass;
  on_glass.wrap_world = [&](comm::World& inner) { return wires.join(inner); };
  const Verdict verdict = verifier.check_fault(layout, on_glass, Seconds{60});
  EXPECT_EQ(verdict.failure, "") << name;
  EXPECT_EQ(verdict.run, on_cpu->run) << name;
  EXPECT_EQ(glass::race().take_reports(), std::vector<std::string>{}) << name;
}

TEST(GlassTraining, HasTheBitsOfCpuTensors) {
  // Kernels of f32 are those of f64.
  const std::vector<const char*> few = {"tp2 zero1", "cp2 dp2"};
  const std::vector<const char*> all = {"dp2 zero0",
                                        "dp2 zero2",
                                        "dp2 zero3",
                                        "tp2 nosp",
                                        "pp2 zb-h1",
                                        "dp2 tp2 pp2 zero1 recompute=full",
                                        "tp4 dp2 zero2",
                                        "cp2 dp2",
                                        "cp2 tp2 zero3 cp_comm_type=gather",
                                        "cp4 cp_comm_type=ulysses recompute=selective"};
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    SCOPED_TRACE(to_text(dtype));
    auto verifier = Verifier::create(tiny_on_device(dtype), 2);
    ASSERT_TRUE(verifier.ok()) << verifier.error().message;
    for (const char* layout : dtype == DType::kF32 ? few : all)
      expect_same_on_glass(*verifier, layout);
  }
}

// More layouts of each by command: `glass_lockstep verify examples/gpt2.toml --layouts pairs`.
TEST(GlassTraining, TrainsEveryFamily) {
  for (spec::Spec spec : train::family_specs()) {
    SCOPED_TRACE(spec.model.name);
    spec.device = DeviceKind::kCuda;
    for (const DType dtype : {DType::kF64, DType::kBF16}) {
      spec.train.dtype = dtype;
      auto verifier = Verifier::create(spec, 2);
      ASSERT_TRUE(verifier.ok()) << verifier.error().message;
      expect_same_on_glass(*verifier,
                           dtype == DType::kF64
                               ? "cp2"
                               : train::name_for(spec, "tp2 pp2 zero1 recompute=selective"));
    }
  }
}

// Ranks that share experts, some of which meet no token at all under the second routing.
TEST(GlassTraining, SharesExperts) {
  spec::Spec spec = train::dots1_spec();
  spec.model.layers = 2;
  spec.device = DeviceKind::kCuda;
  for (const auto& [routing, dtype] :
       {std::pair{model::Routing::kScores, DType::kBF16}, {model::Routing::kLast, DType::kF64}}) {
    SCOPED_TRACE(to_text(routing));
    spec.train.dtype = dtype;
    auto verifier = Verifier::create(spec, 2, {.routing = routing});
    ASSERT_TRUE(verifier.ok()) << verifier.error().message;
    for (const char* layout :
         {"dp2 ep2 zero0", "dp4 ep4 zero3 m2 recompute=full", "pp2 dp2 ep2 zero1 zb-h1 m4",
          "tp2 cp2 dp1 ep2 etp2 zero2", "tp2 dp2 ep4 zero1 m2", "tp4 dp1 ep2 etp2 zero3"})
      expect_same_on_glass(*verifier, layout);
  }
}

// A device's kernels against the CPU's, both in f64 on one rank.
TEST(DeviceKernels, ComputeWhatTheCpusDo) {
  for (spec::Spec spec : train::family_specs()) {
    SCOPED_TRACE(spec.model.name);
    const auto cpu = Verifier::create(spec, 2);
    spec.device = DeviceKind::kCuda;
    const auto device = Verifier::create(spec, 2);
    ASSERT_TRUE(cpu.ok() && device.ok());
    for (std::size_t step = 0; step < 2; ++step) {
      const StepImage &got = device->reference()[step], &wanted = cpu->reference()[step];
      EXPECT_LE(compare_scalars(got, wanted).error, 1e-12);
      for (const Role role : {Role::kGradient, Role::kFirstMoment, Role::kSecondMoment})
        EXPECT_LE(compare(cpu->model(), got, wanted, role, spec.train.lr.peak).error, 1e-12);
    }
  }
}

// The host waits for the device where the sums of a step are read, and nowhere else: as often for
// many microbatches as for one. Where ranks share experts it also reads how many rows go where, two
// tensors in every pass of a block.
TEST(GlassTraining, TheHostWaitsOnceAStep) {
  const auto waits_of = [](spec::Spec spec, std::int64_t global_batch, const char* layout) {
    spec.device = DeviceKind::kCuda;
    spec.train.dtype = DType::kBF16;
    spec.batch.global_batch = global_batch;
    spec.layout = *spec::parse_layout(train::name_for(spec, layout));
    const train::Job job = train::make_job(spec).value();
    const data::MockTokens source(1, spec.model.vocab, false);
    const glass::Wires wires;
    std::array<std::int64_t, 3> counted = {};
    comm::run_local(4, [&](comm::World& host) {
      const auto world = wires.join(host);
      train::Session session(job, *world, "", source, Seconds{60});
      const auto all = host.connect_all("all", "all", Deadline::after(Seconds{60}));
      for (std::int64_t step = 0; step < 3; ++step) {
        all->barrier(Deadline::after(Seconds{60})).wait();
        if (host.rank().value == 0) counted[static_cast<std::size_t>(step)] = glass::host_waits();
        all->barrier(Deadline::after(Seconds{60})).wait();
        session.step(step);
      }
    });
    EXPECT_EQ(counted[2] - counted[1], counted[1] - counted[0]);
    return counted[2] - counted[1];
  };
  for (const spec::Spec& spec : {train::tiny_spec(/*tied=*/true, DType::kBF16),
                                 train::mixtral_spec(), train::dots1_spec()}) {
    EXPECT_EQ(waits_of(spec, 8, "tp2 pp2 zero1"), 4) << spec.model.name;  // of four ranks
    EXPECT_EQ(waits_of(spec, 32, "tp2 pp2 zero1"), 4) << spec.model.name;
  }
  spec::Spec spec = train::dots1_spec();
  spec.model.layers = 2;
  const std::int64_t passes = 2 * spec.model.layers * 2;  // forward and back, of two microbatches
  EXPECT_EQ(waits_of(spec, 8, "dp4 ep4 zero1"), 4 * (1 + 2 * passes));
}

}  // namespace
}  // namespace lockstep::verify

// That glass sees what it is there for: each fault is planted, and told with the names of both ops.
#include "tests/glass/device.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mkldnn_max_pool2d.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/local/local.h"
#include "lockstep/tensor/as_buffer.h"
#include "tests/glass/backend.h"

namespace lockstep::glass {
namespace {

const auto kOptions = at::TensorOptions(at::kFloat).device(kDevice, 0);

c10::Stream new_stream() {
  return c10::impl::VirtualGuardImpl(kDevice).getNewStream(c10::Device(kDevice, 0));
}
// The first report since the last call.
std::string the_report() {
  const std::vector<std::string> all = race().take_reports();
  return all.empty() ? "none" : all[0];
}
void expect_in(const std::string& report, const char* what) {
  EXPECT_NE(report.find(what), std::string::npos) << report;
}

class Glass : public testing::Test {
 protected:
  void SetUp() override { race().take_reports(); }
  void TearDown() override { EXPECT_EQ(race().take_reports(), std::vector<std::string>{}); }
};
using GlassDeathTest = Glass;

TEST_F(Glass, ComputesWhatTheCpuDoes) {
  const at::Tensor a = at::ones({3, 4}), b = at::ones({4, 2});
  const at::Tensor made = at::mm(a.to(kOptions.device()), b.to(kOptions.device())).cpu();
  EXPECT_TRUE(made.equal(at::mm(a, b)));
}

TEST_F(GlassDeathTest, AHostThatReadsOrWritesFaults) {
  const at::Tensor x = at::ones({4}, kOptions);
  EXPECT_DEATH(std::printf("%f", static_cast<double>(*static_cast<float*>(x.data_ptr()))), "");
  EXPECT_DEATH(*static_cast<float*>(x.data_ptr()) = 1.0F, "");
}

TEST_F(GlassDeathTest, PinnedMemoryOfACopyUnderWayFaults) {
  const at::Tensor host = at::empty({4}, at::TensorOptions(at::kFloat).pinned_memory(true));
  host.fill_(1.0);
  const at::Tensor x = host.to(kOptions.device(), at::kFloat, /*non_blocking=*/true);
  EXPECT_DEATH(host.fill_(2.0), "");
  c10::impl::VirtualGuardImpl(kDevice).synchronizeDevice(0);
  host.fill_(2.0);
  EXPECT_EQ(x.cpu()[0].item<float>(), 1.0F);
}

TEST_F(Glass, FreshMemoryIsNoNumber) {
  EXPECT_TRUE(at::empty({2}, kOptions).cpu().isnan().all().item<bool>());
}

TEST_F(Glass, AMissingWaitIsARace) {
  const at::Tensor x = at::ones({4}, kOptions);
  const c10::Stream other = new_stream();
  c10::Event made(kDevice);
  made.record(c10::impl::VirtualGuardImpl(kDevice).getStream(kOptions.device()));
  {
    const c10::StreamGuard guard(other);
    x.add_(1.0);
  }
  const std::string report = the_report();
  expect_in(report, "race: aten::add.out on glass:0 stream");
  expect_in(report, "what aten::fill_.Scalar on glass:0 stream 0 writes");
  made.block(other);
  {
    const c10::StreamGuard guard(other);
    x.add_(1.0);
  }
  c10::Event back(kDevice);
  back.record(other);
  back.block(c10::impl::VirtualGuardImpl(kDevice).getStream(kOptions.device()));
}

TEST_F(Glass, AnEarlyFreeIsTold) {
  const c10::Stream other = new_stream();
  at::Tensor x = at::ones({4}, kOptions);
  c10::Event made(kDevice);
  made.record(c10::impl::VirtualGuardImpl(kDevice).getStream(kOptions.device()));
  made.block(other);
  {
    const c10::StreamGuard guard(other);
    x.add_(1.0);
  }
  x.reset();
  expect_in(the_report(), "lifetime: memory of glass:0 stream 0 is returned while aten::add.out");
}

TEST_F(Glass, MemoryThatIsTakenAgainIsBehindItsOwnerBefore) {
  const c10::Stream other = new_stream();
  at::Tensor x = at::ones({4}, kOptions);
  x.add_(1.0);
  const void* const memory = x.const_data_ptr();
  x.reset();
  const at::Tensor y = at::empty({4}, kOptions);
  ASSERT_EQ(y.const_data_ptr(), memory);
  {
    const c10::StreamGuard guard(other);
    y.zero_();
  }
  const std::string report = the_report();
  expect_in(report, "race: aten::zero_ on glass:0 stream");
  expect_in(report, "what aten::add.out on glass:0 stream 0");
  c10::Event back(kDevice);
  back.record(other);
  back.block(c10::impl::VirtualGuardImpl(kDevice).getStream(kOptions.device()));
}

TEST_F(Glass, AnOpWithoutACudaKernelIsRefused) {
  const at::Tensor x = at::ones({4, 4}, kOptions);
  EXPECT_THROW(at::mkldnn_max_pool2d(x.view({1, 1, 4, 4}), {2, 2}), c10::Error);
}

TEST_F(Glass, WaitsOfTheHostAreCounted) {
  const at::Tensor x = at::ones({4}, kOptions);
  const std::int64_t before = host_waits();
  at::add(x, x);
  EXPECT_EQ(host_waits(), before);
  x.cpu();
  EXPECT_EQ(host_waits(), before + 1);
}

// Of two ranks, on each a body with its world.
void on_two_ranks(const std::function<void(comm::World&)>& body) {
  const Wires wires;
  comm::run_local(2, [&](comm::World& host) {
    const auto world = wires.join(host);
    c10::impl::VirtualGuardImpl(kDevice).setDevice(tensor::torch_device_of(world->device()));
    body(*world);
  });
}
const Deadline kSoon = Deadline::after(Seconds{20});
at::Tensor ones_of(const comm::World& world) {
  return at::ones({4},
                  at::TensorOptions(at::kFloat).device(tensor::torch_device_of(world.device())));
}
std::unique_ptr<comm::Communicator> all_of(comm::World& world, const char* name) {
  return world.connect_device(name, "dp", {Rank{0}, Rank{1}}, kSoon);
}

TEST_F(Glass, ACollectiveIsBehindItsOperandsAndInFrontOfItsReaders) {
  on_two_ranks([](comm::World& world) {
    const auto group = all_of(world, "g");
    const at::Tensor x = ones_of(world);
    group->all_reduce(tensor::as_buffer(x), kSoon).wait();
    EXPECT_EQ(x.cpu()[0].item<float>(), 2.0F);
  });
}

TEST_F(Glass, AReadBeforeTheWaitIsARace) {
  on_two_ranks([](comm::World& world) {
    const auto group = all_of(world, "g");
    const at::Tensor x = ones_of(world);
    comm::Work work = group->all_reduce(tensor::as_buffer(x), kSoon);
    if (world.rank().value == 0) at::add(x, x);
    work.wait();
  });
  const std::string report = the_report();
  expect_in(report, "race: aten::add.out on glass:0 stream 0 reads what all_reduce g");
}

void expect_refused(const std::function<void(comm::World&)>& body, const char* why) {
  try {
    on_two_ranks(body);
    FAIL() << "nothing was refused";
  } catch (const comm::CommError& error) {
    expect_in(error.what(), why);
  }
  race().take_reports();  // nobody waited for what was under way
}

TEST_F(Glass, TwoCommunicatorsInTwoOrdersAreRefused) {
  expect_refused(
      [](comm::World& world) {
        const auto a = all_of(world, "a"), b = all_of(world, "b");
        const at::Tensor x = ones_of(world), y = ones_of(world);
        const bool is_first = world.rank().value == 0;
        comm::Work one = (is_first ? a : b)->all_reduce(tensor::as_buffer(x), kSoon);
        comm::Work two = (is_first ? b : a)->all_reduce(tensor::as_buffer(y), kSoon);
        one.wait();
        two.wait();
      },
      "order: rank");
}

TEST_F(Glass, OneCommunicatorOfBothDirectionsIsRefused) {
  expect_refused(
      [](comm::World& world) {
        const auto group = all_of(world, "g");
        const at::Tensor x = ones_of(world), y = ones_of(world);
        const int peer = 1 - world.rank().value;
        comm::Work sent = group->send(tensor::as_buffer(x), peer, 0, kSoon);
        comm::Work came = group->recv(tensor::as_buffer(y), peer, 0, kSoon);
        sent.wait();
        came.wait();
      },
      "mismatch");
}

TEST_F(Glass, SizesThatDifferAreRefused) {
  expect_refused(
      [](comm::World& world) {
        const auto group = all_of(world, "g");
        const at::Tensor x = ones_of(world).narrow(0, 0, 4 - 2 * world.rank().value);
        group->all_reduce(tensor::as_buffer(x), kSoon).wait();
      },
      "mismatch");
}

}  // namespace
}  // namespace lockstep::glass

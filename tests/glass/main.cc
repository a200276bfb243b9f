// main() of tests on glass: the device is there before anything else.
#include <gtest/gtest.h>

#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/strict_kernels.h"
#include "tests/glass/backend.h"
#include "tests/glass/cuda_only.h"
#include "tests/glass/device.h"
#include "tests/glass/planted.h"

namespace lockstep::glass {

c10::DeviceType tested_device() { return kDevice; }
comm::WorldWrap new_tested_wires() {
  return [wires = std::make_shared<Wires>()](comm::World& host) { return wires->join(host); };
}
int tested_stream_number(c10::Device of) { return number_now(of.index()); }

}  // namespace lockstep::glass

int main(int argc, char** argv) {
  lockstep::tensor::request_strict_kernels();
  lockstep::tensor::install_counting_allocator();
  lockstep::glass::install_cuda_only();
  lockstep::glass::install();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

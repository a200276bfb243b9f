// main() of the tests of planted faults (tests/glass/planted_test.cc) in rehearsal. Started by
// test.sh.
#include <gtest/gtest.h>

#include "lockstep/comm/backends/backends.h"
#include "lockstep/cuda/operators.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/strict_kernels.h"
#include "tests/glass/cuda_only.h"
#include "tests/glass/host_fault.h"
#include "tests/glass/planted.h"
#include "tests/rehearsal/rehearsal.h"
#include "tests/rehearsal/values.h"

namespace lockstep::glass {

c10::DeviceType tested_device() { return c10::DeviceType::CUDA; }
comm::WorldWrap new_tested_wires() {
  return comm::backend_for(DeviceKind::kCuda)->device_per_thread();
}
int tested_stream_number(c10::Device of) { return rehearsal::stream_number_now(of.index()); }

}  // namespace lockstep::glass

int main(int argc, char** argv) {
  lockstep::tensor::request_strict_kernels();
  lockstep::tensor::install_counting_allocator();
  lockstep::glass::install_cuda_only();
  lockstep::cuda::install_operators();
  lockstep::rehearsal::install_values();
  lockstep::glass::tell_host_faults(lockstep::rehearsal::rehearsal_is_device);
  testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  // LibTorch waits for devices while the process ends, too, when the checker is gone.
  lockstep::rehearsal::rehearsal_listen(nullptr);
  return failed;
}

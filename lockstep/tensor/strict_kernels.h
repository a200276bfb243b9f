// Matrix products whose every element depends on its own row and column alone, so that splitting
// rows or columns over ranks changes no bit. MKL offers that as MKL_CBWR=AUTO,STRICT, at no
// measurable cost above 64 x 64 x 64.
#pragma once

#include <string>

namespace lockstep::tensor {

// Call first thing in main: MKL reads the setting at its first product and never again. Also fixes
// one intra-op thread, because more of them change the order of sums. A value the user has set is
// left alone; the self-test judges it.
void request_strict_kernels();

struct StrictReport {
  bool holds_f32 = false;
  bool holds_f64 = false;
  std::string setting;  // value of MKL_CBWR

  bool holds() const { return holds_f32 && holds_f64; }
};

// Multiplies a matrix whole, split by rows and split by columns, and compares bits. Where it does
// not hold, results of different layouts are close, not equal. Takes a few milliseconds.
StrictReport test_strict_kernels();

}  // namespace lockstep::tensor

#include "lockstep/base/dtype.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(DType, EveryNameReadsBackAndTellsTheSize) {
  for (const DType dtype : kAllDTypes) {
    const std::string_view name = to_text(dtype);
    EXPECT_EQ(parse_dtype(name), dtype);
    // The digits of a name are its bits.
    EXPECT_EQ(std::stoul(std::string(name.substr(name.find_first_of("0123456789")))),
              8 * size_of(dtype))
        << name;
  }
}

TEST(DType, SumsAreAtLeastF32) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32})
    EXPECT_EQ(wide_type(dtype), DType::kF32);
  EXPECT_EQ(wide_type(DType::kF64), DType::kF64);
}

TEST(DType, OtherNamesAreRefused) {
  for (const char* name : {"", "f", "F32", "f32 ", "float", "fp8"})
    EXPECT_EQ(parse_dtype(name), std::nullopt) << name;
  EXPECT_THROW(size_of(static_cast<DType>(200)), BrokenInvariant);
}

}  // namespace
}  // namespace lockstep

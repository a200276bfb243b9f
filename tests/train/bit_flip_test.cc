#include "lockstep/train/bit_flip.h"

#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

TEST(BitFlip, IsReadFromSevenFieldsInAnyOrder) {
  const BitFlip flip = {Rank{1}, 3, BitFlip::When::kNorm, Holding::kFirstMoment, 2, 17, 30};
  EXPECT_EQ(
      parse_bit_flip("rank=1 step=3 when=norm of=first_moment segment=2 element=17 bit=30").value(),
      flip);
  EXPECT_EQ(
      parse_bit_flip("bit=30 element=17 segment=2 of=first_moment when=norm step=3 rank=1").value(),
      flip);
  for (const char* bad :
       {"", "rank=1", "rank=1 step=3 when=norm of=first_moment segment=2 element=17 bit=30 more=1",
        "rank=1 rank=1 when=norm of=first_moment segment=2 element=17 bit=30",
        "rank=-1 step=3 when=norm of=first_moment segment=2 element=17 bit=30",
        "rank=1 step=3 when=never of=first_moment segment=2 element=17 bit=30",
        "rank=1 step=3 when=norm of=momentum segment=2 element=17 bit=30",
        "rank=1 step=3 when=norm of=first_moment segment=2 element=17 bit=x"}) {
    const Result<BitFlip> read = parse_bit_flip(bad);
    ASSERT_FALSE(read.ok()) << bad;
    EXPECT_EQ(read.error().code, Code::kBadOptionValue);
  }
}

}  // namespace
}  // namespace lockstep::train

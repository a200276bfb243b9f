#include "lockstep/comm/backend.h"

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

TEST(Backend, TheCoreHasTheLocalRowAndItTakesNoTensorMemory) {
  ASSERT_EQ(core_backends().size(), 1u);
  const BackendRow& row = core_backends()[0];
  EXPECT_EQ(row.name, "local");
  EXPECT_EQ(row.ranks, "thread");
  EXPECT_EQ(row.scratch(OpKind::kReduceScatter, Bytes{1 << 20}, 4), Bytes{0});
}

}  // namespace
}  // namespace lockstep::comm

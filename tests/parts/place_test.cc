#include "lockstep/parts/place.h"

#include <gtest/gtest.h>

#include "lockstep/model/catalog.h"

namespace lockstep::parts {
namespace {

// To overwrite is a permission: a content that is read later, or stays, is not overwritten.
TEST(Place, WhatIsReadLaterIsNotOverwritten) {
  const Sizes sizes(model::find("llama-tiny")->config, {.seq = 4});
  Values values;
  const ValueId x = values.add("x", {Dim::kP, Dim::kH}), y = values.like(x, "y"),
                z = values.like(x, "z");
  const Parts parts = {{Kind::kBias, {x}, {y}}, {Kind::kAdd, {y, x}, {z}}};
  const Pass ends = place(values, sizes, parts, {x}, {z});
  EXPECT_NE(ends.storage(y), ends.storage(x));
  EXPECT_EQ(ends.storage(z), ends.storage(y));
  const Pass stays = place(values, sizes, parts, {x}, {x, y, z});
  EXPECT_NE(stays.storage(z), stays.storage(y));
  EXPECT_NE(stays.storage(z), stays.storage(x));
}

}  // namespace
}  // namespace lockstep::parts

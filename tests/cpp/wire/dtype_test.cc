#include "csrc/wire/dtype.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

TEST(DType, WidthsAndNames) {
  EXPECT_EQ(ElementBytes(DType::kFloat64), 8u);
  EXPECT_EQ(ElementBytes(DType::kBFloat16), 2u);
  EXPECT_EQ(ElementBytes(DType::kOpaque16), 16u);
  EXPECT_EQ(ElementBytes(DType(200)), 0u);
  EXPECT_STREQ(Name(DType::kBFloat16), "bfloat16");
  EXPECT_STREQ(Name(DType(200)), "unknown");
  EXPECT_STREQ(Name(Operation::kAverage), "Average");
}

TEST(DType, WhatHasAMeaning) {
  EXPECT_TRUE(Supports(Operation::kAverage, DType::kFloat16));
  EXPECT_FALSE(Supports(Operation::kAverage, DType::kInt32));
  EXPECT_FALSE(Supports(Operation::kAverage, DType::kBool));
  EXPECT_TRUE(Supports(Operation::kMin, DType::kBool));
  EXPECT_FALSE(Supports(Operation::kSum, DType::kOpaque4));
  EXPECT_TRUE(Supports(Operation::kBroadcast, DType::kOpaque16));
  EXPECT_TRUE(Supports(Operation::kAllgather, DType::kOpaque1));
}

}  // namespace
}  // namespace byteps

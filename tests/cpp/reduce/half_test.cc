#include "csrc/reduce/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace byteps {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Half, EveryFloat16SurvivesTheWayToFloatAndBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = Float16ToFloat(static_cast<uint16_t>(bits));
    const uint16_t back = FloatToFloat16(value);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(Float16ToFloat(back)));
    } else {
      ASSERT_EQ(back, bits);
    }
  }
}

TEST(Half, EveryBFloat16SurvivesTheWayToFloatAndBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = BFloat16ToFloat(static_cast<uint16_t>(bits));
    const uint16_t back = FloatToBFloat16(value);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(BFloat16ToFloat(back)));
    } else {
      ASSERT_EQ(back, bits);
    }
  }
}

TEST(Half, KnownFloat16Values) {
  EXPECT_EQ(Float16ToFloat(0x3c00), 1.0f);
  EXPECT_EQ(Float16ToFloat(0xc000), -2.0f);
  EXPECT_EQ(Float16ToFloat(0x7bff), 65504.0f);
  EXPECT_EQ(Float16ToFloat(0x0001), std::ldexp(1.0f, -24));
  EXPECT_EQ(Float16ToFloat(0x7c00), kInf);
}

TEST(Half, Float16RoundsToNearestTiesToEven) {
  // Between 2048 and 4096 the step is 2.
  EXPECT_EQ(Float16ToFloat(FloatToFloat16(2049.0f)), 2048.0f);
  EXPECT_EQ(Float16ToFloat(FloatToFloat16(2051.0f)), 2052.0f);
  EXPECT_EQ(Float16ToFloat(FloatToFloat16(2049.01f)), 2050.0f);
  EXPECT_EQ(Float16ToFloat(FloatToFloat16(65519.0f)), 65504.0f);
  EXPECT_EQ(Float16ToFloat(FloatToFloat16(65520.0f)), kInf);
  EXPECT_EQ(FloatToFloat16(std::ldexp(1.0f, -25)), 0);  // a tie, to zero
  EXPECT_EQ(FloatToFloat16(std::ldexp(1.5f, -25)), 1);
}

TEST(Half, BFloat16RoundsToNearestTiesToEven) {
  // Between 256 and 512 the step is 2.
  EXPECT_EQ(BFloat16ToFloat(FloatToBFloat16(257.0f)), 256.0f);
  EXPECT_EQ(BFloat16ToFloat(FloatToBFloat16(259.0f)), 260.0f);
  EXPECT_EQ(BFloat16ToFloat(FloatToBFloat16(257.01f)), 258.0f);
  EXPECT_EQ(BFloat16ToFloat(FloatToBFloat16(3.4e38f)), kInf);
}

TEST(Half, ANanIsNeverCutToInfinity) {
  const float nan = BitsToFloat(0x7f800001);
  EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(nan))));
  EXPECT_TRUE(std::isnan(Float16ToFloat(FloatToFloat16(nan))));
}

}  // namespace
}  // namespace byteps

#include "csrc/reduce/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "csrc/reduce/half.h"

namespace byteps {
namespace {

constexpr size_t kCounts[] = {0, 1, 7, 8, 9, 31, 33, 1000};

template <typename T>
T Value(size_t position, int rank) {
  return static_cast<T>((position * (rank + 3)) % 11 + rank);
}

template <typename T>
T Expected(Operation operation, T a, T b) {
  if (operation == Operation::kMin) return b < a ? b : a;
  if (operation == Operation::kMax) return a < b ? b : a;
  return static_cast<T>(a + b);
}

template <typename T>
void Check(DType dtype) {
  for (Operation operation :
       {Operation::kSum, Operation::kMin, Operation::kMax}) {
    for (size_t count : kCounts) {
      std::vector<T> a(count + 1), b(count), expected(count + 1);
      for (size_t i = 0; i < count; ++i) {
        a[i] = Value<T>(i, 0);
        b[i] = Value<T>(i, 1);
        expected[i] = Expected(operation, a[i], b[i]);
      }
      a[count] = expected[count] = 42;  // nothing may be written here
      Accumulate(operation, dtype, a.data(), b.data(), count);
      ASSERT_EQ(a, expected)
          << Name(operation) << " of " << count << " " << Name(dtype);
    }
  }
}

TEST(Reduce, EveryTypeAndOperation) {
  Check<float>(DType::kFloat32);
  Check<double>(DType::kFloat64);
  Check<int8_t>(DType::kInt8);
  Check<int16_t>(DType::kInt16);
  Check<int32_t>(DType::kInt32);
  Check<int64_t>(DType::kInt64);
  Check<uint8_t>(DType::kUInt8);
}

TEST(Reduce, BoolIsOrAndAnd) {
  const uint8_t b[] = {0, 1, 0, 1};
  uint8_t sum[] = {0, 0, 1, 1};
  uint8_t least[] = {0, 0, 1, 1};
  uint8_t most[] = {0, 0, 1, 1};
  Accumulate(Operation::kSum, DType::kBool, sum, b, 4);
  Accumulate(Operation::kMin, DType::kBool, least, b, 4);
  Accumulate(Operation::kMax, DType::kBool, most, b, 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(sum[i], (i != 0) ? 1 : 0);
    EXPECT_EQ(most[i], (i != 0) ? 1 : 0);
    EXPECT_EQ(least[i], (i == 3) ? 1 : 0);
  }
}

TEST(Reduce, IntegersWrapAround) {
  int8_t a[] = {127, -128};
  const int8_t b[] = {1, -1};
  Accumulate(Operation::kSum, DType::kInt8, a, b, 2);
  EXPECT_EQ(a[0], -128);
  EXPECT_EQ(a[1], 127);
}

TEST(Reduce, ANanOnEitherSideStays) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (Operation operation :
       {Operation::kSum, Operation::kMin, Operation::kMax}) {
    std::vector<float> a(20, 1.0f), b(20, 2.0f);
    a[3] = nan;
    b[17] = nan;
    Accumulate(operation, DType::kFloat32, a.data(), b.data(), 20);
    EXPECT_TRUE(std::isnan(a[3])) << Name(operation);
    EXPECT_TRUE(std::isnan(a[17])) << Name(operation);
    EXPECT_FALSE(std::isnan(a[4])) << Name(operation);
  }
}

TEST(Reduce, HalvesAreSummedInFloat32) {
  for (size_t count : kCounts) {
    for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      const bool f16 = dtype == DType::kFloat16;
      const uint16_t big = f16 ? FloatToFloat16(40000) : FloatToBFloat16(40000);
      std::vector<uint16_t> input(count, big), output(count);
      std::vector<float> sum(count);
      Widen(dtype, sum.data(), input.data(), count);
      Accumulate(Operation::kSum, dtype, sum.data(), input.data(), count);
      Divide(AccumulatorType(dtype), sum.data(), 2, count);
      Narrow(dtype, output.data(), sum.data(), count);
      EXPECT_EQ(output, input);
    }
  }
}

TEST(Reduce, SimdAndScalarHalvesAgree) {
  // 65536 values: long enough for every vector path; compared one by one.
  std::vector<uint16_t> all(65536), narrow(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<float> wide(all.size());
  Widen(DType::kFloat16, wide.data(), all.data(), all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const float scalar = Float16ToFloat(all[i]);
    ASSERT_TRUE(wide[i] == scalar ||
                (std::isnan(wide[i]) && std::isnan(scalar)));
    wide[i] *= 1.0003f;  // make rounding matter
  }
  Narrow(DType::kFloat16, narrow.data(), wide.data(), all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::isnan(wide[i])) continue;
    ASSERT_EQ(narrow[i], FloatToFloat16(wide[i])) << i;
  }
}

TEST(Reduce, DividesFloats) {
  std::vector<float> a = {3, 4.5, -9};
  Divide(DType::kFloat32, a.data(), 3, 3);
  EXPECT_EQ(a, (std::vector<float>{1, 1.5, -3}));
  std::vector<double> b = {1};
  Divide(DType::kFloat64, b.data(), 4, 1);
  EXPECT_EQ(b[0], 0.25);
}

}  // namespace
}  // namespace byteps

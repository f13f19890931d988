#include "csrc/control/clock_offset.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

TEST(ClockOffset, IsFoundBetweenQuestionAndAnswer) {
  constexpr int64_t kAhead = 5000000000;
  ClockOffset clock;
  EXPECT_EQ(clock.samples(), 0);
  clock.Add(1000, kAhead + 1100, 1200);  // both ways alike
  EXPECT_EQ(clock.offset_ns(), kAhead);
  EXPECT_EQ(clock.error_ns(), 100);
}

TEST(ClockOffset, TheQuickestAnswerCounts) {
  constexpr int64_t kBehind = -700000;
  ClockOffset clock;
  // The answer takes ten times the question's time: off by 450, and says so.
  clock.Add(0, kBehind + 100, 1100);
  EXPECT_EQ(clock.offset_ns(), kBehind - 450);
  EXPECT_GE(clock.error_ns(), 450);
  clock.Add(5000, kBehind + 5020, 5040);
  clock.Add(9000, kBehind + 9900, 10000);
  EXPECT_EQ(clock.offset_ns(), kBehind);
  EXPECT_EQ(clock.error_ns(), 20);
  EXPECT_EQ(clock.samples(), 3);
}

}  // namespace
}  // namespace byteps

#include "csrc/transport/liveness.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

using Verdict = Liveness::Verdict;

// Checks every interval up to `until`, as the transport does.
Verdict CheckUntil(Liveness* liveness, int64_t from, int64_t until,
                   int64_t sent) {
  Verdict verdict = Verdict::kFine;
  for (int64_t now = from; now <= until; now += 1250) {
    verdict = liveness->Check(now, sent);
    if (verdict == Verdict::kLost) break;
  }
  return verdict;
}

TEST(Liveness, SilenceForTheTimeoutIsALoss) {
  Liveness liveness(10000, 0);
  EXPECT_NE(CheckUntil(&liveness, 1250, 9999, 0), Verdict::kLost);
  EXPECT_EQ(liveness.Check(9999, 9999), Verdict::kFine);
  EXPECT_EQ(liveness.Check(10000, 10000), Verdict::kLost);
  EXPECT_EQ(liveness.SilenceMs(10000), 10000);
}

TEST(Liveness, AnyByteIsLife) {
  Liveness liveness(10000, 0);
  EXPECT_NE(CheckUntil(&liveness, 1250, 9000, 0), Verdict::kLost);
  liveness.Heard(9000);
  EXPECT_NE(CheckUntil(&liveness, 10000, 18999, 0), Verdict::kLost);
  EXPECT_EQ(liveness.Check(19000, 0), Verdict::kLost);
}

TEST(Liveness, PingsAfterAQuarterWithoutSending) {
  Liveness liveness(10000, 0);
  liveness.Heard(2000);
  EXPECT_EQ(liveness.Check(2499, 0), Verdict::kFine);
  EXPECT_EQ(liveness.Check(2500, 0), Verdict::kPing);
  EXPECT_EQ(liveness.Check(2600, 2500), Verdict::kFine);
}

TEST(Liveness, TimeInWhichThisProcessDidNotRunIsNotHeldAgainstThePeer) {
  Liveness liveness(10000, 0);
  EXPECT_EQ(liveness.Check(1000, 1000), Verdict::kFine);
  // Stopped for a minute. What the peer sent meanwhile is not read yet.
  EXPECT_NE(liveness.Check(61000, 61000), Verdict::kLost);
  EXPECT_LE(liveness.SilenceMs(61000), 1000);
  // But then the silence counts.
  EXPECT_EQ(CheckUntil(&liveness, 62250, 72000, 62250), Verdict::kLost);
}

TEST(Liveness, ChecksOftenEnoughToBeInTime) {
  EXPECT_EQ(Liveness::IntervalMs(10000), 1250);
  EXPECT_EQ(Liveness::IntervalMs(1), 1);
}

}  // namespace
}  // namespace byteps

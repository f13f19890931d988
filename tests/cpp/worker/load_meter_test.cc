#include "csrc/worker/load_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "csrc/worker/shares.h"

namespace byteps {
namespace {

constexpr uint32_t kNone = 99;
constexpr double kSecond = 1e9;

// Servers that are busy for as long as their shares take at their paces.
class Bed {
 public:
  explicit Bed(std::vector<double> paces, uint32_t own = kNone)
      : paces_(std::move(paces)),
        shares_(paces_.size(), kWholeModel / paces_.size()),
        meter_(shares_, own),
        totals_(paces_.size()) {
    meter_.Measure(totals_);
  }

  // A period; true if other shares came of it.
  bool Period(const std::vector<double>& noise = {}) {
    for (size_t i = 0; i < paces_.size(); ++i) {
      const double fair = static_cast<double>(shares_[i]) *
                          static_cast<double>(paces_.size()) / kWholeModel;
      const double odd = noise.empty() ? 1 : noise[i];
      totals_[i].busy_ns +=
          static_cast<int64_t>(2 * kSecond * fair / paces_[i] * odd);
      totals_[i].bytes += static_cast<uint64_t>(fair * 1e8);
    }
    const std::vector<uint64_t> better = meter_.Measure(totals_);
    if (better.empty()) return false;
    EXPECT_EQ(std::accumulate(better.begin(), better.end(), uint64_t{0}),
              std::accumulate(shares_.begin(), shares_.end(), uint64_t{0}));
    shares_ = better;
    meter_.Changed(better);
    meter_.Measure(totals_);  // the next period begins
    return true;
  }
  int Periods(int count) {
    int changes = 0;
    for (int i = 0; i < count; ++i) changes += Period() ? 1 : 0;
    return changes;
  }
  double Part(size_t server) const {
    return static_cast<double>(shares_[server]) / kWholeModel;
  }

  std::vector<double> paces_;
  std::vector<uint64_t> shares_;
  LoadMeter meter_;
  std::vector<Load> totals_;
};

TEST(LoadMeter, EquallyBusyServersKeepTheirShares) {
  Bed bed({1, 1, 1, 1});
  EXPECT_EQ(bed.Periods(50), 0);
}

TEST(LoadMeter, ASlowServerLosesUntilAllAreEquallyBusy) {
  Bed bed({1, 1, 0.25, 1});
  EXPECT_FALSE(bed.Period());  // once may be chance
  EXPECT_TRUE(bed.Period());
  EXPECT_LT(bed.Part(2), 0.15);
  EXPECT_LE(bed.Periods(50), 3);
  // A thirteenth would be exact.
  EXPECT_GT(bed.Part(2), 0.06);
  EXPECT_LT(bed.Part(2), 0.10);
  EXPECT_NEAR(bed.Part(0), bed.Part(3), 0.001);
}

TEST(LoadMeter, WhoRecoversGetsItsLoadBack) {
  for (size_t servers : {2, 4, 16}) {
    Bed bed(std::vector<double>(servers, 1));
    const double fair = 1 / static_cast<double>(servers);
    bed.paces_[1] = 0.2;
    bed.Periods(30);
    EXPECT_LT(bed.Part(1), 0.4 * fair);
    bed.paces_[1] = 1;
    bed.Periods(30);
    EXPECT_GT(bed.Part(1), 0.75 * fair) << servers;
    EXPECT_LT(bed.Part(1), 1.15 * fair) << servers;
    EXPECT_EQ(bed.Periods(50), 0);
  }
}

TEST(LoadMeter, AServerThatStandsKeepsAPart) {
  Bed bed({1, 1e-6, 1, 1});
  bed.Periods(50);
  EXPECT_NEAR(bed.Part(1), 1.0 / 64, 0.001);
  EXPECT_EQ(bed.Periods(50), 0);
}

TEST(LoadMeter, NoiseChangesNothing) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> tenth(0.9, 1.1);
  Bed bed(std::vector<double>(8, 1));
  for (int i = 0; i < 1000; ++i) {
    std::vector<double> noise(8);
    for (double& of : noise) of = tenth(random);
    EXPECT_FALSE(bed.Period(noise));
  }
}

TEST(LoadMeter, AServerThatStopsForAMomentKeepsItsShare) {
  Bed bed({1, 1, 1});
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(bed.Period({1, 5, 1}));
    EXPECT_FALSE(bed.Period());
  }
}

TEST(LoadMeter, WhereLittleIsPushedNothingChanges) {
  LoadMeter meter({kWholeModel / 2, kWholeModel / 2}, kNone);
  std::vector<Load> totals(2);
  meter.Measure(totals);
  for (int i = 0; i < 20; ++i) {
    totals[0].busy_ns += 2 * LoadMeter::kLeastBusyNs;
    totals[1].busy_ns += LoadMeter::kLeastBusyNs;
    totals[0].bytes += LoadMeter::kLeastBytes / 2;
    totals[1].bytes += LoadMeter::kLeastBytes / 2;
    EXPECT_TRUE(meter.Measure(totals).empty());
  }
}

TEST(LoadMeter, ShortPeriodsAddUp) {
  LoadMeter meter({kWholeModel / 2, kWholeModel / 2}, kNone);
  std::vector<Load> totals(2);
  meter.Measure(totals);
  int until = 0;
  std::vector<uint64_t> better;
  while (better.empty() && until < 100) {
    totals[0].busy_ns += LoadMeter::kLeastBusyNs / 10;
    totals[1].busy_ns += LoadMeter::kLeastBusyNs / 20;
    totals[1].bytes += LoadMeter::kLeastBytes;
    better = meter.Measure(totals);
    ++until;
  }
  EXPECT_EQ(until, 20);
}

TEST(LoadMeter, TheServerInThisProcessIsNotCompared) {
  Bed bed({1, 1, 1, 1}, 0);
  bed.paces_[0] = 0.1;
  EXPECT_EQ(bed.Periods(20), 0);
  bed.paces_[2] = 0.25;
  EXPECT_GT(bed.Periods(20), 0);
  EXPECT_EQ(bed.shares_[0], kWholeModel / 4);
  EXPECT_LT(bed.Part(2), 0.15);
  // Nothing is left to compare with.
  Bed two({1, 0.1}, 0);
  EXPECT_EQ(two.Periods(20), 0);
}

TEST(LoadMeter, AServerWithoutAShareGetsNone) {
  LoadMeter meter({0, kWholeModel / 2, kWholeModel / 2}, kNone);
  std::vector<Load> totals(3);
  meter.Measure(totals);
  std::vector<uint64_t> better;
  for (int i = 0; i < 2; ++i) {
    totals[1] = {totals[1].busy_ns + 4 * LoadMeter::kLeastBusyNs,
                 totals[1].bytes + 4 * LoadMeter::kLeastBytes};
    totals[2] = {totals[2].busy_ns + LoadMeter::kLeastBusyNs,
                 totals[2].bytes + 4 * LoadMeter::kLeastBytes};
    better = meter.Measure(totals);
  }
  ASSERT_EQ(better.size(), 3u);
  EXPECT_EQ(better[0], 0u);
  EXPECT_LT(better[1], better[2]);
}

TEST(LoadCount, IsBusyWhileSomethingIsUnanswered) {
  LoadCount count;
  EXPECT_EQ(count.total(50).busy_ns, 0);
  count.Pushed(100);
  count.Pushed(110);
  EXPECT_EQ(count.total(130).busy_ns, 30);
  count.Answered(8, 140);
  count.Answered(4, 150);
  EXPECT_EQ(count.total(900).busy_ns, 50);
  EXPECT_EQ(count.total(900).bytes, 12u);
  count.Pushed(1000);
  EXPECT_EQ(count.total(1001).busy_ns, 51);
}

}  // namespace
}  // namespace byteps

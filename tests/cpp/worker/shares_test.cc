#include "csrc/worker/shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace byteps {
namespace {

Config Cluster(size_t n, size_t k, std::vector<double> bandwidths = {}) {
  Config config;
  config.workers.resize(n);
  config.servers.resize(k);
  config.mixed = k > 0;
  config.bandwidths = std::move(bandwidths);
  return config;
}

// Until the last host is done, in units of M / B of a host of bandwidth 1.
double Time(const Config& config) {
  const std::vector<uint64_t> shares = SharesOf(config);
  const double n = static_cast<double>(config.workers.size());
  double longest = 0;
  for (uint32_t i = 0; i < config.num_servers(); ++i) {
    const ProcessName name = config.server_name(i);
    const bool worker = name.role == Role::kWorker;
    const double share = static_cast<double>(shares[i]) / kWholeModel;
    const double bytes = worker ? 1 + (n - 2) * share : n * share;
    const size_t host = name.index + (worker ? 0 : config.workers.size());
    const double bandwidth =
        config.bandwidths.empty() ? 1 : config.bandwidths[host];
    longest = std::max(longest, bytes / bandwidth);
  }
  return longest;
}

uint64_t Sum(const std::vector<uint64_t>& shares) {
  return std::accumulate(shares.begin(), shares.end(), uint64_t{0});
}

TEST(Shares, EqualLinksHaveThePublishedTimes) {
  EXPECT_NEAR(Time(Cluster(4, 0)), 1.5, 1e-5);
  EXPECT_NEAR(Time(Cluster(4, 1)), 4.0 / 3, 1e-5);
  EXPECT_NEAR(Time(Cluster(4, 2)), 1.2, 1e-5);
  EXPECT_NEAR(Time(Cluster(4, 4)), 1, 1e-5);
  EXPECT_NEAR(Time(Cluster(8, 4)), 14.0 / 11, 1e-5);
  EXPECT_NEAR(Time(Cluster(8, 8)), 1, 1e-5);
}

TEST(Shares, EqualLinksHaveThePublishedShares) {
  for (size_t n = 2; n <= 16; ++n) {
    for (size_t k = 0; k <= n; ++k) {
      const std::vector<uint64_t> shares = SharesOf(Cluster(n, k));
      EXPECT_EQ(Sum(shares), kWholeModel);
      const double part = static_cast<double>(kWholeModel) /
                          static_cast<double>(n * n + k * n - 2 * k);
      for (size_t i = 0; i < k + n; ++i) {
        const double wanted =
            part * static_cast<double>(i < k ? 2 * (n - 1) : n - k);
        // What rounding leaves over goes to one of them.
        EXPECT_NEAR(static_cast<double>(shares[i]), wanted, 33)
            << n << " " << k << " " << i;
      }
    }
  }
}

TEST(Shares, NoOtherSharesAreFasterOnUnequalLinks) {
  const std::vector<double> bandwidths = {100, 400, 200, 300, 250, 1000};
  const Config config = Cluster(4, 2, bandwidths);
  // The slowest worker sends M at 100, whatever the others do …
  EXPECT_NEAR(Time(config), 1.0 / 100, 1e-6);
  // … and where none is that slow every link is busy to the end.
  const Config faster = Cluster(4, 2, {300, 400, 350, 300, 250, 200});
  const std::vector<uint64_t> shares = SharesOf(faster);
  const double time = Time(faster);
  for (uint32_t i = 0; i < 6; ++i) {
    const double share = static_cast<double>(shares[i]) / kWholeModel;
    const double bytes = i < 2 ? 4 * share : 1 + 2 * share;
    EXPECT_NEAR(bytes / faster.bandwidths[i < 2 ? 4 + i : i - 2], time, 1e-7);
  }
}

TEST(Shares, DedicatedServersAloneShareByTheirLinks) {
  Config config = Cluster(3, 2, {1, 1, 1, 1, 3});
  config.mixed = false;
  const std::vector<uint64_t> shares = SharesOf(config);
  EXPECT_EQ(Sum(shares), kWholeModel);
  EXPECT_NEAR(static_cast<double>(shares[0]) / kWholeModel, 0.25, 1e-6);
}

TEST(Shares, OneWorkerKeepsItsGradients) {
  EXPECT_EQ(SharesOf(Cluster(1, 1)), (std::vector<uint64_t>{0, kWholeModel}));
  EXPECT_EQ(SharesOf(Cluster(1, 0)), (std::vector<uint64_t>{kWholeModel}));
}

TEST(Shares, ExtremesStayWholeAndPositive) {
  for (const std::vector<double>& bandwidths :
       {std::vector<double>{1e-6, 1e9, 1, 1, 1},
        std::vector<double>{1, 1, 1, 1e9, 1e9},
        std::vector<double>{1e9, 1e9, 1e9, 1, 1}}) {
    EXPECT_EQ(Sum(SharesOf(Cluster(3, 2, bandwidths))), kWholeModel);
  }
}

}  // namespace
}  // namespace byteps

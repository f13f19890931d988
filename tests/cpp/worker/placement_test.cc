#include "csrc/worker/placement.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "csrc/worker/partitioner.h"

namespace byteps {
namespace {

TEST(Placement, PartitionsGoRoundTheServers) {
  const Placement placement({5, 5, 5}, 16, false);
  const uint64_t tensor = TensorId("a");
  std::vector<int> load(3);
  for (uint32_t i = 0; i < 30; ++i) {
    ++load[placement.ServerOf({tensor, i}, nullptr)];
  }
  EXPECT_EQ(load, (std::vector<int>{10, 10, 10}));
}

TEST(Placement, SmallTensorsSpreadAsWell) {
  const Placement placement({1, 1, 1, 1}, 16, false);
  std::vector<int> load(4);
  for (int i = 0; i < 400; ++i) {
    const uint64_t id = TensorId("tensor " + std::to_string(i));
    ++load[placement.ServerOf({id, 0}, nullptr)];
  }
  for (int tensors : load) EXPECT_GT(tensors, 50);
}

TEST(Placement, ATensorAloneFollowsTheShares) {
  const Placement placement({0, 100, 300, 600}, 16, false);
  std::vector<int> load(4);
  for (uint32_t i = 1; i <= 1000; ++i) {
    ++load[placement.ServerOf({TensorId("a"), i}, nullptr)];
  }
  EXPECT_EQ(load[0], 0);
  EXPECT_NEAR(load[1], 100, 5);
  EXPECT_NEAR(load[2], 300, 5);
  EXPECT_NEAR(load[3], 600, 5);
}

TEST(Placement, TheFirstPartitionStaysWhateverThePlan) {
  const Placement placement({1, 1, 1}, 16, false);
  TensorPlan plan;
  for (uint32_t server = 0; server < 3; ++server) {
    plan.servers = {server, 2, 9};
    EXPECT_EQ(placement.ServerOf({7, 0}, &plan),
              placement.ServerOf({7, 0}, nullptr));
    EXPECT_EQ(placement.ServerOf({7, 1}, &plan), 2u);
    // Not of this job, and beyond the plan.
    for (uint32_t p : {2, 3}) {
      EXPECT_EQ(placement.ServerOf({7, p}, &plan),
                placement.ServerOf({7, p}, nullptr));
    }
  }
}

std::vector<PlannedTensor> Tensors() {
  std::vector<PlannedTensor> tensors;
  for (uint64_t i = 0; i < 100; ++i) {
    tensors.push_back(
        {"t" + std::to_string(i), (i % 10) * (i % 10) * 99'996 + 4, 4});
  }
  return tensors;
}

TEST(Placement, APlanMeetsTheShares) {
  const std::vector<uint64_t> shares = {1 << 23, 1 << 22, 1 << 22, 0};
  const std::vector<PlannedTensor> tensors = Tensors();
  const Plan plan = Placement(shares, 0, false).PlanTogether(tensors);
  const auto total = static_cast<double>(
      std::accumulate(plan.bytes.begin(), plan.bytes.end(), uint64_t{0}));
  EXPECT_EQ(plan.bytes[3], 0u);
  for (size_t i = 0; i < 3; ++i) {
    const double share = static_cast<double>(shares[i]) / (1 << 24);
    EXPECT_NEAR(static_cast<double>(plan.bytes[i]) / total, share, 0.001);
  }
  EXPECT_EQ(plan.tensors[7].summary.tensors, tensors.size());
  EXPECT_EQ(static_cast<double>(plan.tensors[7].summary.bytes), total);
}

TEST(Placement, APlanIsTheSameEveryTimeAndComesBackAsItWas) {
  const Placement placement({3 << 22, 1 << 22}, 0, false);
  const Plan a = placement.PlanTogether(Tensors());
  const Plan b = placement.PlanTogether(Tensors());
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const std::string bytes = Encode(a.tensors[i]);
    EXPECT_EQ(bytes, Encode(b.tensors[i]));
    Result<TensorPlan> back = DecodeTensorPlan(bytes);
    ASSERT_TRUE(back.ok());
    if (bytes.empty()) continue;  // one partition
    EXPECT_EQ(back.value().servers, a.tensors[i].servers);
    EXPECT_EQ(back.value().summary.bytes, a.tensors[i].summary.bytes);
    EXPECT_NE(back.value().summary.digest, 0u);
    for (size_t n = 1; n < 20; ++n) {
      if (n % 4 == 0 && n >= 16) continue;  // whole numbers
      EXPECT_FALSE(DecodeTensorPlan(bytes.substr(0, n)).ok()) << n;
    }
  }
}

TEST(Placement, TheWholePlanDecidesOnItsPartitions) {
  const Placement placement({1 << 23, 1 << 23}, 0, false);
  std::vector<PlannedTensor> tensors(100, {"t", 1 << 20, 4});
  const Plan plan = placement.PlanTogether(tensors);
  const uint64_t size = placement.PartitionBytes(1 << 20, &plan.tensors[0]);
  EXPECT_GE(size, 3 * placement.PartitionBytes(1 << 20, nullptr));
  EXPECT_EQ(plan.tensors[0].servers.size(), ((1 << 20) - 1) / size + 1);
  // The operation has what it needs to cut the tensor as it was planned.
  const TensorPlan back = DecodeTensorPlan(Encode(plan.tensors[0])).value();
  EXPECT_EQ(placement.PartitionBytes(1 << 20, &back), size);
}

TEST(Placement, ATensorThatCannotBeCutIsLeftOut) {
  const Placement placement({1, 1}, 16, false);
  const Plan plan =
      placement.PlanTogether({{"a", uint64_t{1} << 50, 4}, {"b", 64, 4}});
  EXPECT_TRUE(plan.tensors[0].servers.empty());
  EXPECT_EQ(plan.bytes[0] + plan.bytes[1], 64u);
}

TEST(Placement, TheUsersPartitionSizeStands) {
  EXPECT_EQ(Placement({1}, 16, false).PartitionBytes(1 << 30, nullptr), 16u);
  EXPECT_EQ(Placement({1}, 0, false).PartitionBytes(1 << 30, nullptr),
            FittingPartitionBytes(1 << 30, 0, 1, false));
  // A server without a share counts for nothing.
  EXPECT_EQ(Placement({1, 0, 1}, 0, false).PartitionBytes(1 << 20, nullptr),
            FittingPartitionBytes(1 << 20, 0, 2, false));
}

}  // namespace
}  // namespace byteps

#include "csrc/control/membership.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

const ProcessName kServer0{Role::kServer, 0};
const ProcessName kWorker0{Role::kWorker, 0};
const ProcessName kWorker1{Role::kWorker, 1};

Config Cluster(ProcessName self) {
  Config config;
  config.self = self;
  config.workers = {"a:1", "b:1"};
  config.servers = {"s:1"};
  return config;
}

TEST(Membership, TheFirstEndOfAProcessStands) {
  Membership membership(Cluster(kWorker0));
  EXPECT_TRUE(membership.Join(kWorker1));
  EXPECT_FALSE(membership.Join(kWorker1));
  EXPECT_FALSE(membership.IsGone(kWorker1));
  EXPECT_TRUE(membership.Leave(kWorker1));
  EXPECT_TRUE(membership.IsGone(kWorker1));
  EXPECT_FALSE(membership.Lose(kWorker1));
  EXPECT_FALSE(membership.Join(kWorker1));
}

TEST(Membership, StrangersAreUnknown) {
  Membership membership(Cluster(kWorker0));
  EXPECT_FALSE(membership.Knows({Role::kWorker, 7}));
  EXPECT_FALSE(membership.Lose({Role::kWorker, 7}));
  EXPECT_TRUE(membership.Knows(kServer0));
}

TEST(Membership, AbsentAreThoseThatNeverJoined) {
  Membership membership(Cluster(kServer0));
  membership.Join(kWorker1);
  EXPECT_EQ(membership.Absent({kWorker0, kWorker1}),
            (std::vector<ProcessName>{kWorker0}));
}

TEST(Membership, AServerIsDoneWhenEveryWorkerIsGone) {
  Membership membership(Cluster(kServer0));
  membership.Join(kWorker0);
  membership.Join(kWorker1);
  membership.Leave(kWorker0);
  EXPECT_FALSE(membership.AllOtherWorkersGone());
  membership.Lose(kWorker1);
  EXPECT_TRUE(membership.AllOtherWorkersGone());
}

}  // namespace
}  // namespace byteps

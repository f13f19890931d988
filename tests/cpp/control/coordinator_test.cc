#include "csrc/control/coordinator.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

TEST(Coordinator, StartsOnceWhenAllAreReady) {
  Config config;
  config.self = {Role::kServer, 0};
  config.workers = {"a:1", "b:1"};
  config.servers = {"s:1"};
  Coordinator coordinator(config);
  EXPECT_FALSE(coordinator.Ready({Role::kServer, 0}));
  EXPECT_FALSE(coordinator.Ready({Role::kWorker, 1}));
  EXPECT_FALSE(coordinator.Ready({Role::kWorker, 1}));
  EXPECT_FALSE(coordinator.Ready({Role::kWorker, 9}));
  EXPECT_EQ(coordinator.NotReady(),
            (std::vector<ProcessName>{{Role::kWorker, 0}}));
  EXPECT_TRUE(coordinator.Ready({Role::kWorker, 0}));
  EXPECT_FALSE(coordinator.Ready({Role::kWorker, 0}));
}

}  // namespace
}  // namespace byteps

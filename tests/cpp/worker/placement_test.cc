#include "csrc/worker/placement.h"

#include <gtest/gtest.h>

#include <vector>

#include "csrc/wire/messages.h"

namespace byteps {
namespace {

TEST(Placement, PartitionsGoRoundTheServers) {
  const Placement placement(3);
  const uint64_t tensor = TensorId("a");
  std::vector<int> load(3);
  for (uint32_t i = 0; i < 30; ++i) ++load[placement.ServerOf({tensor, i})];
  EXPECT_EQ(load, (std::vector<int>{10, 10, 10}));
}

TEST(Placement, SmallTensorsSpreadAsWell) {
  const Placement placement(4);
  std::vector<int> load(4);
  for (int i = 0; i < 400; ++i) {
    ++load[placement.ServerOf({TensorId("tensor " + std::to_string(i)), 0})];
  }
  for (int tensors : load) EXPECT_GT(tensors, 50);
}

}  // namespace
}  // namespace byteps

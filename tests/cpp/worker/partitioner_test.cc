#include "csrc/worker/partitioner.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

Declaration Floats(int64_t count, uint64_t partition_bytes) {
  Declaration d;
  d.name = "t";
  d.shape = {count};
  d.partition_bytes = partition_bytes;
  return d;
}

TEST(Partitioner, GivesEachPartitionItsPlace) {
  const Placement placement(2);
  auto tasks = CutIntoPartitions(Floats(10, 16), 7, 2, placement);
  ASSERT_TRUE(tasks.ok());
  ASSERT_EQ(tasks.value().size(), 3u);
  EXPECT_EQ(tasks.value()[2].range.offset, 32u);
  EXPECT_EQ(tasks.value()[2].range.bytes, 8u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(tasks.value()[i].server, placement.ServerOf({7, i}));
  }
}

TEST(Partitioner, TooManyPartitionsIsASentence) {
  auto tasks =
      CutIntoPartitions(Floats(int64_t{1} << 40, 16), 7, 2, Placement(2));
  ASSERT_FALSE(tasks.ok());
  EXPECT_EQ(tasks.status().code(), Code::kInvalidArgument);
  EXPECT_NE(tasks.status().message().find("raise partition_bytes"),
            std::string::npos);
}

TEST(PartitionTask, TakesItsStepsInOrderAndOnce) {
  PartitionTask task;
  EXPECT_FALSE(task.Finish());
  EXPECT_TRUE(task.Start());
  EXPECT_FALSE(task.Start());
  EXPECT_TRUE(task.Finish());
  EXPECT_FALSE(task.Finish());
}

}  // namespace
}  // namespace byteps

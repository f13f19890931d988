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
  const Placement placement({1, 1}, 16, false);
  auto tasks = CutIntoPartitions(Floats(10, 16), 7, 2, placement, nullptr);
  ASSERT_TRUE(tasks.ok());
  ASSERT_EQ(tasks.value().size(), 3u);
  EXPECT_EQ(tasks.value()[2].range.offset, 32u);
  EXPECT_EQ(tasks.value()[2].range.bytes, 8u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(tasks.value()[i].server, placement.ServerOf({7, i}, nullptr));
  }
}

TEST(Partitioner, TooManyPartitionsIsASentence) {
  auto tasks = CutIntoPartitions(Floats(int64_t{1} << 40, 16), 7, 2,
                                 Placement({1, 1}, 16, false), nullptr);
  ASSERT_FALSE(tasks.ok());
  EXPECT_EQ(tasks.status().code(), Code::kInvalidArgument);
  EXPECT_NE(tasks.status().message().find("raise partition_bytes"),
            std::string::npos);
}

TEST(Partitioner, PartitionsFitTheTensor) {
  for (uint64_t total : {0, 4, 32768, 32772, 1 << 20, 37748736, 411041792}) {
    for (uint32_t servers : {1, 2, 5, 16}) {
      const uint64_t size = FittingPartitionBytes(total, 0, servers, false);
      EXPECT_EQ(size % 4096, 0u);
      EXPECT_GE(size, 16384u);  // half of what is too large by one byte
      EXPECT_LE(size, uint64_t{1} << 20);
      if (total < 2 * size) continue;
      // The last is not much smaller than the others.
      const uint64_t rest = total % size;
      EXPECT_TRUE(rest == 0 || rest + 4096 * (total / size + 1) >= size)
          << total << " in partitions of " << size;
    }
  }
  // Each server has some of a tensor of this size, and of a larger one.
  EXPECT_EQ(FittingPartitionBytes(1 << 20, 0, 4, false), 24576u);
  EXPECT_EQ(FittingPartitionBytes(1 << 22, 0, 4, false), 32768u);
  EXPECT_EQ(FittingPartitionBytes(1 << 26, 0, 4, false), 32768u);
  EXPECT_EQ(FittingPartitionBytes(1 << 28, 0, 8, false), uint64_t{1} << 16);
  EXPECT_EQ(FittingPartitionBytes(uint64_t{1} << 32, 0, 8, false),
            uint64_t{1} << 20);
  // What travels with it is cut as coarsely as one tensor of that size.
  EXPECT_EQ(FittingPartitionBytes(1 << 20, 1 << 28, 8, false),
            uint64_t{1} << 16);
  EXPECT_EQ(FittingPartitionBytes(1 << 16, 1 << 29, 8, false),
            uint64_t{1} << 16);
  // Eight times as large on one host.
  EXPECT_EQ(FittingPartitionBytes(1 << 20, 0, 4, true), 32768u);
  EXPECT_EQ(FittingPartitionBytes(1 << 28, 0, 8, true), uint64_t{1} << 19);
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

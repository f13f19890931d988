#include "csrc/wire/partition.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

TEST(Partition, CoversATensorWithoutGapsOrOverlaps) {
  for (uint64_t total : {8u, 16u, 24u, 4096u, 4104u, 12345u * 8u}) {
    for (uint64_t size : {1u, 8u, 16u, 20u, 4096u, 1u << 20}) {
      uint64_t end = 0;
      const uint64_t count = PartitionCount(total, size, 8);
      for (uint64_t i = 0; i < count; ++i) {
        const PartitionRange range = PartitionAt(i, total, size, 8);
        ASSERT_EQ(range.offset, end);
        ASSERT_GT(range.bytes, 0u);
        ASSERT_EQ(range.bytes % 8, 0u);
        end += range.bytes;
      }
      ASSERT_EQ(end, total);
    }
  }
}

TEST(Partition, BordersOfOnePartition) {
  EXPECT_EQ(PartitionCount(0, 100, 4), 1u);
  EXPECT_EQ(PartitionAt(0, 0, 100, 4).bytes, 0u);
  EXPECT_EQ(PartitionCount(100, 100, 4), 1u);
  EXPECT_EQ(PartitionCount(104, 100, 4), 2u);
  EXPECT_EQ(PartitionAt(1, 104, 100, 4).bytes, 4u);
}

TEST(Partition, SizesBeyond32Bits) {
  const uint64_t total = uint64_t{10} << 32;
  const uint64_t count = PartitionCount(total, 4096000, 4);
  const PartitionRange last = PartitionAt(count - 1, total, 4096000, 4);
  EXPECT_EQ(last.offset + last.bytes, total);
}

}  // namespace
}  // namespace byteps

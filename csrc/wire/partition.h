// How a tensor is cut into partitions. Pure arithmetic that workers and servers
// must agree on.
#ifndef BYTEPS_WIRE_PARTITION_H_
#define BYTEPS_WIRE_PARTITION_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace byteps {

struct PartitionRange {
  uint64_t offset = 0;  // in the tensor
  uint64_t bytes = 0;
};

// No element is cut in two, and a partition holds at least one.
inline uint64_t WholeElements(uint64_t partition_bytes, size_t element_bytes) {
  return std::max<uint64_t>(partition_bytes / element_bytes, 1) * element_bytes;
}

// An empty tensor has one empty partition, so that it still makes a round.
inline uint64_t PartitionCount(uint64_t total_bytes, uint64_t partition_bytes,
                               size_t element_bytes) {
  const uint64_t step = WholeElements(partition_bytes, element_bytes);
  return total_bytes == 0 ? 1 : (total_bytes - 1) / step + 1;
}

// `partition` must be below PartitionCount.
inline PartitionRange PartitionAt(uint64_t partition, uint64_t total_bytes,
                                  uint64_t partition_bytes,
                                  size_t element_bytes) {
  const uint64_t step = WholeElements(partition_bytes, element_bytes);
  const uint64_t offset = partition * step;
  return {offset, std::min(step, total_bytes - offset)};
}

}  // namespace byteps

#endif  // BYTEPS_WIRE_PARTITION_H_

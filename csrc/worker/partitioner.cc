#include "csrc/worker/partitioner.h"

#include <algorithm>
#include <string>

namespace byteps {
namespace {

constexpr uint64_t kSmallBytes = 32 << 10;
// Where a server has fewer partitions than this, the last ones are a good part
// of the step, and are smaller.
constexpr uint64_t kFewPartitionsPerServer = 32;
constexpr uint64_t kLeastBytes = 24 << 10;
constexpr uint64_t kMostBytes = 1 << 20;
// A step ends some partitions after its last push: one in so many.
constexpr uint64_t kPartitionsPerServer = 512;
constexpr uint64_t kPartitionsPerServerOfOneHost = 64;
constexpr uint64_t kPageBytes = 4096;

// The least number of parts of `size` that hold `total`.
uint64_t Parts(uint64_t total, uint64_t size) { return (total - 1) / size + 1; }

}  // namespace

uint64_t FittingPartitionBytes(uint64_t total_bytes, uint64_t together_bytes,
                               uint32_t num_servers, bool one_host) {
  if (total_bytes <= kSmallBytes) return kSmallBytes;
  const uint64_t of_server =
      Parts(std::max(total_bytes, together_bytes), std::max(num_servers, 1u));
  const uint64_t wanted =
      Parts(of_server,
            one_host ? kPartitionsPerServerOfOneHost : kPartitionsPerServer);
  const uint64_t least = one_host
                             ? kSmallBytes
                             : std::clamp(of_server / kFewPartitionsPerServer,
                                          kLeastBytes, kSmallBytes);
  const uint64_t most = std::clamp(wanted, least, kMostBytes);
  const uint64_t equal = Parts(total_bytes, Parts(total_bytes, most));
  return Parts(equal, kPageBytes) * kPageBytes;
}

Result<std::vector<PartitionTask>> CutIntoPartitions(
    const Declaration& declaration, uint64_t tensor_id, uint32_t num_workers,
    const Placement& placement, const TensorPlan* plan) {
  const uint64_t total = declaration.total_bytes(num_workers);
  const uint64_t size = declaration.partition_bytes;
  const size_t element = declaration.element_bytes();
  const uint64_t count = PartitionCount(total, size, element);
  if (count > kMaxPartitions) {
    return InvalidArgument(
        "tensor \"" + declaration.name + "\" of " + std::to_string(total) +
        " bytes would be cut into " + std::to_string(count) +
        " partitions; expected at most " + std::to_string(kMaxPartitions) +
        ": raise partition_bytes. Received: partition_bytes=" +
        std::to_string(size));
  }
  std::vector<PartitionTask> tasks(count);
  for (uint32_t i = 0; i < count; ++i) {
    tasks[i].range = PartitionAt(i, total, size, element);
    tasks[i].server = placement.ServerOf({tensor_id, i}, plan);
  }
  return tasks;
}

}  // namespace byteps

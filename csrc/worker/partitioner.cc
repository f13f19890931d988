#include "csrc/worker/partitioner.h"

#include <string>

namespace byteps {
namespace {

// Far above any sensible number: each costs a message and its bookkeeping.
constexpr uint64_t kMaxPartitions = uint64_t{1} << 24;

}  // namespace

Result<std::vector<PartitionTask>> CutIntoPartitions(
    const Declaration& declaration, uint64_t tensor_id, uint32_t num_workers,
    const Placement& placement) {
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
    tasks[i].server = placement.ServerOf({tensor_id, i});
  }
  return tasks;
}

}  // namespace byteps

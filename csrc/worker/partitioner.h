// Cuts a declared tensor into partitions and gives each its server. Pure.
#ifndef BYTEPS_WORKER_PARTITIONER_H_
#define BYTEPS_WORKER_PARTITIONER_H_

#include <cstdint>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/wire/messages.h"
#include "csrc/worker/partition_task.h"
#include "csrc/worker/placement.h"

namespace byteps {

// Far above any sensible number: each costs a message and its bookkeeping.
constexpr uint64_t kMaxPartitions = uint64_t{1} << 24;

// For a tensor without a size of the user's: equal partitions, small enough
// that every server has some and sums one while the next arrives, large enough
// that messages cost little beside their bytes. `together_bytes`: of all
// tensors that travel with it. On one host no link is to be kept busy to the
// end, and fewer partitions cost less.
uint64_t FittingPartitionBytes(uint64_t total_bytes, uint64_t together_bytes,
                               uint32_t num_servers, bool one_host);

// `plan` is the tensor's; null: none. InvalidArgument if the tensor would need
// more partitions than a key can number; the text says which partition size is
// large enough.
Result<std::vector<PartitionTask>> CutIntoPartitions(
    const Declaration& declaration, uint64_t tensor_id, uint32_t num_workers,
    const Placement& placement, const TensorPlan* plan);

}  // namespace byteps

#endif  // BYTEPS_WORKER_PARTITIONER_H_

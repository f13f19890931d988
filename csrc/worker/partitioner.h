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

// InvalidArgument if the tensor would need more partitions than a key can
// number; the text says which partition size is large enough.
Result<std::vector<PartitionTask>> CutIntoPartitions(
    const Declaration& declaration, uint64_t tensor_id, uint32_t num_workers,
    const Placement& placement);

}  // namespace byteps

#endif  // BYTEPS_WORKER_PARTITIONER_H_

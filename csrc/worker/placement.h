// Which server sums a key. Pure; the same answer on every process.
//
// Made from the servers' shares. A tensor by itself goes round the servers in
// proportion to them; tensors that travel together are planned together, which
// meets the shares more closely.
#ifndef BYTEPS_WORKER_PLACEMENT_H_
#define BYTEPS_WORKER_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/wire/header.h"
#include "csrc/wire/messages.h"

namespace byteps {

// A tensor that will travel together with others.
struct PlannedTensor {
  std::string name;
  uint64_t bytes = 0;
  size_t element_bytes = 1;
};

// Where a plan puts a tensor's partitions.
struct TensorPlan {
  // By partition; the first does not count. Empty where any size of partition
  // holds all of the tensor.
  std::vector<uint32_t> servers;
  PlanSummary summary;
};

// The bytes that a tensor's operation keeps of a plan; empty where there is
// nothing to plan.
std::string Encode(const TensorPlan& plan);
// InvalidArgument if the bytes are no plan.
Result<TensorPlan> DecodeTensorPlan(const std::string& bytes);

struct Plan {
  std::vector<TensorPlan> tensors;
  std::vector<uint64_t> bytes;  // by server
};

class Placement {
 public:
  // `shares` by server, as SharesOf gives them. `partition_bytes` of 0 cuts
  // tensors as FittingPartitionBytes says, for processes on `one_host` or not.
  Placement(const std::vector<uint64_t>& shares, uint64_t partition_bytes,
            bool one_host);

  // `plan` is the tensor's; null: none. A tensor's first partition stays where
  // it is whatever the shape and the plan: workers that disagree on either meet
  // there.
  uint32_t ServerOf(const Key& key, const TensorPlan* plan) const;

  // What a tensor of `total_bytes` is cut into. `plan` is the tensor's; null:
  // none.
  uint64_t PartitionBytes(uint64_t total_bytes, const TensorPlan* plan) const;

  // Gives the largest partitions first, each to the server that is farthest
  // from its share.
  Plan PlanTogether(const std::vector<PlannedTensor>& tensors) const;

 private:
  const std::vector<uint64_t> shares_;
  const uint64_t partition_bytes_;
  const bool one_host_;
  uint32_t num_used_ = 0;        // servers with a share
  std::vector<uint32_t> round_;  // servers in turn, each as often as its share
  std::vector<uint32_t> homes_;  // of first partitions
};

}  // namespace byteps

#endif  // BYTEPS_WORKER_PLACEMENT_H_

// One push-pull under way on the worker. Guarded by the worker client's lock,
// except what never changes after it began.
#ifndef BYTEPS_WORKER_PUSH_PULL_OPERATION_H_
#define BYTEPS_WORKER_PUSH_PULL_OPERATION_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "csrc/worker/worker_client.h"

namespace byteps {

struct PushPullOperation {
  PushPullRequest request;
  StatusCallback done;
  TensorEntry* entry = nullptr;
  std::shared_ptr<const Declaration> declaration;
  uint64_t round = 0;
  std::vector<PartitionTask> tasks;
  std::vector<uint32_t> undeclared;  // servers to tell before the pushes

  size_t unanswered = 0;  // partitions without a result
  size_t sending = 0;     // in the transport, input still needed
  size_t landing = 0;     // results on their way into the output
  uint64_t turn = 0;      // that of its allgather, for the dispatcher
  int64_t called_ns = 0;  // for the timeline
  Status failure;
};

}  // namespace byteps

#endif  // BYTEPS_WORKER_PUSH_PULL_OPERATION_H_

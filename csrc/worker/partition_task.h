// The life of one partition of one push-pull on the worker.
//
//   queued ──start──► pushed ──result──► done
#ifndef BYTEPS_WORKER_PARTITION_TASK_H_
#define BYTEPS_WORKER_PARTITION_TASK_H_

#include <cstdint>

#include "csrc/wire/partition.h"

namespace byteps {

enum class TaskState : uint8_t {
  kQueued,  // waits in the dispatcher
  kPushed,  // handed to the transport; the answer may come any time
  kDone,    // the result is in the output
};

struct PartitionTask {
  PartitionRange range;
  uint32_t server = 0;
  TaskState state = TaskState::kQueued;
  int64_t pushed_ns = 0;  // handed to the transport
  uint64_t place = 0;     // in the dispatcher's order of pushes
  // For the timeline; 0 while nothing is recorded.
  int64_t sent_ns = 0;     // has left this process
  int64_t landing_ns = 0;  // the result begins to arrive

  // Each returns whether the step is legal; if not nothing changes.
  bool Start() { return Step(TaskState::kQueued, TaskState::kPushed); }
  bool Finish() { return Step(TaskState::kPushed, TaskState::kDone); }

 private:
  bool Step(TaskState from, TaskState to) {
    if (state != from) return false;
    state = to;
    return true;
  }
};

}  // namespace byteps

#endif  // BYTEPS_WORKER_PARTITION_TASK_H_

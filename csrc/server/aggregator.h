// All keys of one reduce thread. Decides what to send; the summation server
// sends it. A state machine without I/O, clock or thread.
#ifndef BYTEPS_SERVER_AGGREGATOR_H_
#define BYTEPS_SERVER_AGGREGATOR_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/config.h"
#include "csrc/server/key_slot.h"

namespace byteps {

class Aggregator {
 public:
  // `pool` outlives the aggregator and what it has put into outboxes.
  Aggregator(const Config& config, BufferPool* pool);

  void Push(const Key& key, Contribution contribution, int64_t now_ms,
            Outbox* out);
  void Cancel(const Key& key, uint64_t round, const Status& why, Outbox* out);
  // Rounds that need this worker, now or later, fail with `why`.
  void WorkerLeft(uint32_t rank, const Status& why, Outbox* out);
  // All rounds fail, now and later.
  void Fail(const Status& why, Outbox* out);
  // Returns the warnings to log.
  std::vector<std::string> CheckStalls(int64_t now_ms, Outbox* out);

  bool has_open_round() const { return !open_.empty(); }

 private:
  KeySlot* Slot(const Key& key);
  // Keeps open_ in step after an event on `slot`.
  void Note(const Key& key, KeySlot* slot);

  const uint32_t num_workers_;
  const int64_t stall_warning_ms_;
  const int64_t stall_limit_ms_;
  BufferPool* const pool_;
  Absences gone_;  // by rank
  std::unordered_map<Key, KeySlot, KeyHash> slots_;
  // Slots with an open round: all that a loss or a stall can concern.
  std::unordered_map<Key, KeySlot*, KeyHash> open_;
};

}  // namespace byteps

#endif  // BYTEPS_SERVER_AGGREGATOR_H_

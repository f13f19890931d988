// All keys of one reduce thread. Decides what to send; the summation server
// sends it.
//
// Each of a server's aggregators hears who joins, and starts anew when
// everybody has. One of them, the last to hear, tells the workers.
//
// A state machine without I/O, clock or thread.
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
  Aggregator(const Config& config, BufferPool* pool, bool answers_joins);

  void Push(const Key& key, Contribution contribution, int64_t now_ms,
            Outbox* out);
  void Cancel(const Key& key, uint64_t round, const Status& why, Outbox* out);
  // Rounds do without this worker until everybody has joined.
  void WorkerJoined(uint32_t rank, uint64_t push_pulls, Outbox* out);
  // Rounds that need this worker, now or later, fail with `why`, and so do
  // joins.
  void WorkerLeft(uint32_t rank, const Status& why, Outbox* out);
  // All rounds and joins fail, now and later.
  void Fail(const Status& why, Outbox* out);
  // Returns the warnings to log.
  std::vector<std::string> CheckStalls(int64_t now_ms, Outbox* out);

  bool has_open_round() const { return !open_.empty(); }

 private:
  KeySlot* Slot(const Key& key);
  // Keeps open_ in step after an event on `slot`.
  void Note(const Key& key, KeySlot* slot);
  // Tells a worker that has joined that not everybody will.
  void SendJoinError(uint32_t rank, const Status& why, Outbox* out) const;

  const uint32_t num_workers_;
  const int64_t stall_warning_ms_;
  const int64_t stall_limit_ms_;
  BufferPool* const pool_;
  const bool answers_joins_;
  Absences absences_;
  // Of those that have joined the one with the most push-pulls, among equals
  // the last. (A worker that makes one more than another does so after the
  // other has joined, but this server may have had no part in it.)
  uint32_t last_to_join_ = 0;
  uint64_t its_push_pulls_ = 0;
  std::unordered_map<Key, KeySlot, KeyHash> slots_;
  // Slots with an open round: all that a loss or a stall can concern.
  std::unordered_map<Key, KeySlot*, KeyHash> open_;
};

}  // namespace byteps

#endif  // BYTEPS_SERVER_AGGREGATOR_H_

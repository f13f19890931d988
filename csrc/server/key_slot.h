// One key on the server: collects the workers' contributions of a round and
// combines them.
//
// Two rounds at a time, since a fast worker pushes the next round while a slow
// one has yet to push this one. Contributions are combined in the order of
// ranks, so that a sum has the same bits whatever the order of arrival; one
// that is ahead of its turn waits where it was received. The first becomes the
// accumulator, unless it lies in the worker's own memory.
//
//   idle ──push──► open ──last push or join──► closed
//                    └──conflict, loss, cancel, stall──► failed
//
// A round goes without the workers that have joined, as if they had nothing to
// add, and its result to those that pushed. A failed round answers whoever
// pushes it later with the same error. A state machine without I/O, clock or
// thread; owned by one Aggregator.
#ifndef BYTEPS_SERVER_KEY_SLOT_H_
#define BYTEPS_SERVER_KEY_SLOT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/memory/buffer_pool.h"
#include "csrc/wire/header.h"
#include "csrc/wire/messages.h"

namespace byteps {

// What a server sends; shared by all its receivers until the last has it.
struct Payload {
  Buffer buffer;              // a result …
  std::vector<uint8_t> body;  // … or a message

  const void* data() const {
    return body.empty() ? static_cast<const void*>(buffer.data()) : body.data();
  }
  size_t size() const { return body.empty() ? buffer.size() : body.size(); }
};

struct Outgoing {
  uint32_t rank = 0;
  Kind kind = Kind::kResult;
  Key key;
  uint64_t round = 0;
  std::shared_ptr<const Payload> payload;  // null: none
};
using Outbox = std::vector<Outgoing>;

// A worker's part of a round.
struct Contribution {
  uint32_t rank = 0;
  uint64_t round = 0;
  std::shared_ptr<const Declaration> declaration;
  Buffer data;
  bool lost = false;  // there was no memory to receive it
};

// Who will not push, by rank.
struct Absences {
  explicit Absences(uint32_t num_workers)
      : gone(num_workers), joined(num_workers) {}

  // Why the first of those that are gone is; OK if there is none.
  Status WhoIsGone() const;

  std::vector<Status> gone;  // OK for those still there
  std::vector<bool> joined;  // rounds do without them, if they are still there
};

class KeySlot {
 public:
  // `pool` outlives the slot and everything in the outbox.
  KeySlot(const Key& key, uint32_t num_workers, BufferPool* pool);

  void Push(Contribution contribution, const Absences& absences, int64_t now_ms,
            Outbox* out);
  // A worker gave the round up because of `why`.
  void Cancel(uint64_t round, const Status& why, Outbox* out);
  // `absences` has another worker that joined: open rounds may be complete.
  void WorkerJoined(const Absences& absences, Outbox* out);
  // Open rounds that still need `rank` fail.
  void WorkerLeft(uint32_t rank, const Status& why, Outbox* out);
  void Fail(const Status& why, Outbox* out);
  // Warns of rounds that are open for `warning_ms`, ends them at `limit_ms`.
  // The warnings are added to `log`.
  void CheckStall(const Absences& absences, int64_t now_ms, int64_t warning_ms,
                  int64_t limit_ms, Outbox* out, std::vector<std::string>* log);

  bool has_open_round() const;

 private:
  enum class State { kIdle, kOpen, kClosed, kFailed };
  struct Round {
    uint64_t number = 0;
    State state = State::kIdle;
    std::shared_ptr<const Declaration> declaration;  // the first one's
    uint32_t declared_by = 0;
    std::vector<bool> pushed;     // by rank
    std::vector<Buffer> waiting;  // by rank
    uint32_t combined = 0;        // ranks below have had their turn
    bool begun = false;           // one of them is in the accumulator
    Buffer accumulator;
    size_t count = 0;  // elements
    int64_t opened_ms = 0;
    int64_t warned_ms = 0;
    Status failure;
  };

  Round& At(uint64_t round) { return rounds_[round % 2]; }
  void Restart(Round* round, uint64_t number, Outbox* out);
  // Combines those whose turn it is; after the last the round closes.
  void Advance(Round* round, const Absences& absences, Outbox* out);
  Status Combine(Round* round, uint32_t rank);
  // Gives the round an accumulator that this process may write to: what it
  // has, combined with `input` if there is one.
  Status Own(Round* round, DType dtype, const Buffer* input);
  void Finish(Round* round, Outbox* out);
  void FailRound(Round* round, const Status& why, Outbox* out);
  void SendError(const Round& round, uint32_t rank, const Status& why,
                 Outbox* out) const;
  std::string Missing(const Round& round, const Absences& absences) const;

  const Key key_;
  const uint32_t num_workers_;
  BufferPool* const pool_;
  Round rounds_[2];
};

}  // namespace byteps

#endif  // BYTEPS_SERVER_KEY_SLOT_H_

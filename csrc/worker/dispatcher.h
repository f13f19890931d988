// Decides which partition goes next to each server: higher priority first, then
// first come first served, as far as the server's credit and window reach. The
// operations of one turn, an allgather's, alternate.
//
// The credit bounds the bytes that are handed to the transport and have not
// left this process, so that a late partition of high priority never queues
// behind more than that. The window bounds those without an answer, softly (see
// AnswerWindow): what it takes from one server goes to the others, and what it
// takes from one worker to the workers behind it.
//
// Owned by the worker client. Any thread may call any method; partitions are
// started on whichever thread made the room, never under the lock, and never
// nested in each other. A thread of its own opens windows that stay shut.
#ifndef BYTEPS_WORKER_DISPATCHER_H_
#define BYTEPS_WORKER_DISPATCHER_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <queue>
#include <vector>

#include "csrc/base/thread.h"
#include "csrc/worker/answer_window.h"
#include "csrc/worker/load_meter.h"

namespace byteps {

struct PushPullOperation;

// A partition that waits for its turn.
struct Queued {
  std::shared_ptr<PushPullOperation> operation;
  uint32_t partition = 0;
  uint64_t bytes = 0;
  int64_t priority = 0;
  uint64_t turn = 0;  // 0: one of its own
  // Set by the dispatcher.
  uint64_t sequence = 0;  // order of arrival
  uint64_t place = 0;     // in the order of pushes, for Answered
};

class Dispatcher {
 public:
  // `start` hands a partition to the transport, or drops it. Each is followed
  // by exactly one Sent and one Answered for its bytes, at once or later, in
  // either order.
  using Start = std::function<void(uint32_t server, const Queued& item)>;

  // `shares`: how much of all each server sums, for a start.
  Dispatcher(const std::vector<uint64_t>& shares, uint64_t credit_bytes,
             Start start);
  ~Dispatcher();  // closes

  void Enqueue(uint32_t server, std::vector<Queued> items);
  // For the items of operations that alternate.
  uint64_t TakeTurn();
  void Sent(uint32_t server, uint64_t bytes);
  // `took_ns` after it was started; 0: it was given up.
  void Answered(uint32_t server, uint64_t bytes, int64_t priority,
                uint64_t place, int64_t took_ns);

  // From then on windows open no more, and what is started is started by the
  // callers. Not from `start`.
  void Close();

  std::vector<Load> loads();  // by server

 private:
  struct Later {
    bool operator()(const Queued& a, const Queued& b) const {
      if (a.priority != b.priority) return a.priority < b.priority;
      if (a.turn != b.turn) return a.turn > b.turn;
      if (a.partition != b.partition) return a.partition > b.partition;
      return a.sequence > b.sequence;
    }
  };
  struct Lane {
    std::priority_queue<Queued, std::vector<Queued>, Later> waiting;
    uint64_t in_flight_bytes = 0;
    double share = 0;         // of all that servers sum, for a start
    uint64_t left_bytes = 0;  // not answered yet, pushed or not
    AnswerWindow window;
    LoadCount load;
    bool draining = false;  // a thread is in Drain for this server
  };
  void Drain(uint32_t server);
  double PartOfWindow(const Lane& lane) const;
  void OpenWindows();

  const uint64_t credit_bytes_;
  const Start start_;
  std::mutex mutex_;
  std::vector<Lane> lanes_;     // by server; guarded by mutex_
  AnswerPace pace_;             // guarded by mutex_
  uint64_t left_bytes_ = 0;     // of all lanes; guarded by mutex_
  uint64_t last_turn_ = 0;      // guarded by mutex_
  uint64_t next_sequence_ = 0;  // guarded by mutex_

  std::condition_variable shut_;
  int64_t opener_wakes_ns_ = 0;  // guarded by mutex_
  bool closed_ = false;          // guarded by mutex_
  Thread opener_;                // after all that it uses
};

}  // namespace byteps

#endif  // BYTEPS_WORKER_DISPATCHER_H_

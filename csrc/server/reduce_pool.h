// The threads that sum. A key is always on the same one. What is too little to
// wake a thread for is done on the caller's, with the lock of the key's thread.
// Results are sent on these threads only.
//
// Owned by the summation server. Any thread may post. Events posted before
// Close are all handled; later ones are dropped.
#ifndef BYTEPS_SERVER_REDUCE_POOL_H_
#define BYTEPS_SERVER_REDUCE_POOL_H_

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "csrc/base/config.h"
#include "csrc/base/queue.h"
#include "csrc/base/thread.h"
#include "csrc/server/aggregator.h"

namespace byteps {

class ReducePool {
 public:
  using Event = std::function<void(Aggregator*, Outbox*)>;
  using Sender = std::function<void(const Outgoing&)>;

  // `send` is called on the reduce threads.
  ReducePool(const Config& config, BufferPool* pool, Sender send);
  ~ReducePool();

  // The thread that has this key.
  uint32_t ThreadOf(const Key& key) const;
  void Post(const Key& key, Event event);
  // On the caller if the key's thread has nothing to do, else there.
  void Do(const Key& key, Event event);
  // The first thread's aggregator, which answers joins, gets it last: by then
  // the event is ahead of all that its answer can lead to.
  void PostToAll(const Event& event);
  void Close();
  void Join();

 private:
  struct Lane {
    Lane(const Config& config, BufferPool* pool, bool answers_joins)
        : aggregator(config, pool, answers_joins) {}
    Queue<Event> events;
    std::mutex mutex;       // held from an event's end of waiting to its end
    Aggregator aggregator;  // guarded by mutex
    Thread thread;
  };
  void Run(Lane* lane);

  const int64_t check_interval_ms_;
  const Sender send_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace byteps

#endif  // BYTEPS_SERVER_REDUCE_POOL_H_

// A server's half of push-pull: receives pushes, has them combined, answers.
//
// Owned by the runtime, which routes messages here. Land, Arrived and Abandoned
// are for the transports' threads (one worker's messages come from one thread);
// the rest is for any thread. A message that breaks the protocol is refused,
// and the transport then drops its sender; everything else that goes wrong is
// answered with kRoundError.
#ifndef BYTEPS_SERVER_SUMMATION_SERVER_H_
#define BYTEPS_SERVER_SUMMATION_SERVER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "csrc/base/config.h"
#include "csrc/base/timeline.h"
#include "csrc/memory/buffer_pool.h"
#include "csrc/memory/shared_region.h"
#include "csrc/server/reduce_pool.h"
#include "csrc/transport/transport.h"

namespace byteps {

struct ServerCounters {
  uint64_t pushes = 0;
  uint64_t results = 0;
  uint64_t bytes_summed = 0;  // received for a sum
};

class SummationServer {
 public:
  // `timeline` outlives the server; null: nothing is recorded. What the server
  // receives and sends lies in `region`, if there is one.
  explicit SummationServer(const Config& config, Timeline* timeline = nullptr,
                           std::shared_ptr<SharedRegion> region = nullptr);
  ~SummationServer();

  void Start(uint32_t membership_epoch);
  void AddWorker(uint32_t rank, Peer* peer);

  Landing Land(Peer* peer, const Header& header);
  void Arrived(Peer* peer, const Header& header, const Landing& landing);
  void Abandoned(Peer* peer, const Header& header, const Landing& landing);

  void WorkerLeft(uint32_t rank, const Status& why);
  void Fail(const Status& why);

  ServerCounters counters() const;

  // Close refuses new work and returns at once; what was received before is
  // still summed and sent. Join waits for that.
  void Close();
  void Join();

 private:
  using DeclarationPtr = std::shared_ptr<const Declaration>;
  // A payload that is being received.
  struct Incoming {
    DeclarationPtr declaration;  // pushes only
    Buffer data;
    bool lost = false;
    int64_t landing_ns = 0;  // for the timeline
  };

  // Null if the push is not one that this worker may make now.
  std::unique_ptr<Incoming> Admit(uint32_t rank, const Header& header);
  void Send(const Outgoing& outgoing);

  const Config config_;
  Timeline* const timeline_;
  BufferPool buffers_;
  std::atomic<uint32_t> membership_epoch_{0};
  // By rank; each is touched by the one thread that this worker's messages
  // come from.
  std::vector<std::unordered_map<uint64_t, DeclarationPtr>> declarations_;
  std::mutex mutex_;
  std::vector<Peer*> workers_;  // by rank; guarded by mutex_
  std::atomic<uint64_t> pushes_{0};
  std::atomic<uint64_t> results_{0};
  std::atomic<uint64_t> bytes_summed_{0};
  std::unique_ptr<ReducePool> reduce_;  // last: its threads use all above
};

}  // namespace byteps

#endif  // BYTEPS_SERVER_SUMMATION_SERVER_H_

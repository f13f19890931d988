// A worker's half of push-pull: cuts tensors into partitions, pushes them to
// their servers in order of priority, and puts the results where the caller
// wants them.
//
// Owned by the runtime, which routes messages here. Any thread may call
// PushPull, Allgather, Join, ServerLeft and Fail; Land, Arrived and Abandoned
// are for the transports' threads. Nothing blocks.
//
// Every `done` is called exactly once, never under the lock, when the transport
// no longer touches the caller's memory. A push-pull fails as a whole: with the
// error that a server reports for one of its partitions, or with what the
// runtime says of a lost process.
//
//   pushing ──Join──► draining ──nothing under way──► joined
//      ▲                                                │
//      └────────every server says: all have joined──────┘
//
// While a worker has joined it misses rounds of the others, so after that all
// workers start to count anew, in the next generation of rounds.
//
// Worker 0 measures the servers and proposes other shares for them; between
// Hold and Commit nothing begins (see control/rebalance.h).
#ifndef BYTEPS_WORKER_WORKER_CLIENT_H_
#define BYTEPS_WORKER_WORKER_CLIENT_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/config.h"
#include "csrc/base/status.h"
#include "csrc/base/timeline.h"
#include "csrc/transport/transport.h"
#include "csrc/wire/messages.h"
#include "csrc/worker/dispatcher.h"
#include "csrc/worker/load_meter.h"
#include "csrc/worker/moves.h"
#include "csrc/worker/partition_task.h"
#include "csrc/worker/placement.h"
#include "csrc/worker/tensor_table.h"

namespace byteps {

struct PushPullRequest {
  std::string name;
  DType dtype = DType::kFloat32;
  Operation operation = Operation::kSum;
  uint32_t root_rank = 0;  // broadcast only
  std::vector<int64_t> shape;
  int64_t priority = 0;  // larger goes first
  std::string compression;
  std::shared_ptr<const TensorPlan> plan;  // null: none
  // Both live until done; they may be the same. In a broadcast the root's
  // output is left alone and the others' input is not read.
  const void* input = nullptr;
  void* output = nullptr;
};

struct AllgatherRequest {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;  // this worker's; at least one dimension
  int64_t priority = 0;
  const void* input = nullptr;
  // Called once, with the first dimension of every worker, for memory that
  // holds all rows. An error fails the allgather.
  std::function<Result<void*>(const std::vector<int64_t>& rows)> allocate;
};

// Gets the rank of the worker that joined last.
using JoinCallback = std::function<void(Result<uint32_t>)>;

struct WorkerCounters {
  uint64_t pushes = 0;
  uint64_t results = 0;
  uint64_t bytes_pushed = 0;
  uint64_t bytes_pulled = 0;
  uint64_t rebalances = 0;
};

class WorkerClient {
 public:
  // Gets other shares of the servers.
  using Propose = std::function<void(std::vector<uint64_t> shares)>;

  // `timeline` outlives the client; null: nothing is recorded. Without
  // `propose` nothing is measured.
  explicit WorkerClient(const Config& config, Timeline* timeline = nullptr,
                        Propose propose = nullptr);
  ~WorkerClient();

  // `servers` by index. Requests before this fail.
  void Start(std::vector<Peer*> servers, uint32_t membership_epoch);

  void PushPull(PushPullRequest request, StatusCallback done);
  void Allgather(AllgatherRequest request, StatusCallback done);
  // Until all workers have joined the others do without this one, which cannot
  // push. Waits for what is under way here. A server or a worker that leaves
  // meanwhile is the end, as a loss is.
  void Join(JoinCallback done);

  // Begins nothing until the commit of that version, and returns this worker's
  // next rounds.
  RebalanceBody Hold(uint64_t version);
  // Goes on, with other shares from the rounds that it names on.
  void Commit(const RebalanceBody& commit);

  Landing Land(Peer* peer, const Header& header);
  void Arrived(Peer* peer, const Header& header, const Landing& landing);
  void Abandoned(Peer* peer, const Header& header, const Landing& landing);

  // That server said goodbye; what it still owes fails with `why`, and so does
  // what would need it later.
  void ServerLeft(uint32_t server, const Status& why);
  // All that is outstanding and all that comes later fails with `why`. The
  // first reason stands.
  void Fail(const Status& why);
  // After Fail: its thread ends. Not from a callback.
  void Close() { dispatcher_.Close(); }

  WorkerCounters counters() const;
  size_t num_tensors() const;

 private:
  using OperationPtr = std::shared_ptr<PushPullOperation>;
  // A Join that has not ended.
  struct Joining {
    JoinCallback done;
    bool sent = false;           // the servers are being told
    std::vector<bool> answered;  // by server
    uint32_t last_rank = 0;
  };
  // What must be done once the lock is released.
  struct Afterwards {
    struct Answer {
      uint32_t server;
      uint64_t bytes;
      int64_t priority;
      uint64_t place;
      int64_t took_ns;  // 0: given up
    };
    std::vector<Answer> answered;
    std::vector<std::pair<StatusCallback, Status>> completed;
    std::vector<OperationPtr> begun;
    std::vector<std::pair<OperationPtr, Status>> given_up;
    bool join = false;
    bool measure = false;  // a period may be over
    // At most one.
    std::vector<std::pair<JoinCallback, Result<uint32_t>>> joined;
  };

  Status CheckProcess() const;
  Status Validate(const PushPullRequest& request) const;
  // `allgather_turn` of the dispatcher; 0: not of an allgather.
  void PushPull(PushPullRequest request, uint64_t allgather_turn,
                StatusCallback done);
  void AllgatherEnded(StatusCallback done, const Status& status);
  // The following need mutex_.
  void BeginLocked(OperationPtr operation, Afterwards* after);
  void FailLocked(const OperationPtr& operation, const Status& why,
                  Afterwards* after);
  void CompleteIfOverLocked(const OperationPtr& operation, Afterwards* after);
  OperationPtr ActiveLocked(const Header& header);
  // OK if this worker may begin something.
  Status MayBeginLocked() const;
  void JoinIfQuietLocked(Afterwards* after);
  void BeginWaitingLocked(TensorEntry* tensor, Afterwards* after);
  void CountRoundLocked(TensorEntry* tensor, Afterwards* after);
  // Into the timeline, of one partition; kTensor: of all, this is the last.
  void Record(Span::What what, const PushPullOperation& operation,
              uint32_t partition, int64_t begin_ns, int64_t end_ns);

  void Finish(Afterwards after);
  void Dispatch(const OperationPtr& operation);
  void SendCancels(const OperationPtr& operation, const Status& why);
  void StartPartition(uint32_t server, const Queued& item);
  void PartitionSent(uint32_t server, const OperationPtr& operation,
                     uint32_t partition);
  void SendJoins();
  void Measure();
  void JoinAnswered(Peer* peer, const Header& header,
                    const std::vector<uint8_t>& body);
  void SendBody(uint32_t server, Header header,
                std::shared_ptr<const std::vector<uint8_t>> body);

  const Config config_;
  const Placement placement_;
  const pid_t pid_;
  Timeline* const timeline_;

  mutable std::mutex mutex_;
  TensorTable table_;               // guarded by mutex_
  std::vector<Peer*> servers_;      // guarded by mutex_, set once
  std::vector<Status> left_;        // by server; guarded by mutex_
  uint32_t membership_epoch_ = 0;   // guarded by mutex_, set once
  Status failure_;                  // guarded by mutex_
  size_t allgathers_ = 0;           // under way; guarded by mutex_
  std::optional<Joining> joining_;  // guarded by mutex_
  uint64_t generation_ = 0;         // how often it joined; guarded by mutex_
  uint64_t push_pulls_ = 0;         // of this generation; guarded by mutex_
  MovesByRound moves_;              // guarded by mutex_
  std::vector<uint64_t> shares_;    // that hold now; guarded by mutex_
  uint64_t held_ = 0;    // until the commit of this; guarded by mutex_
  Status hold_failure_;  // it will not come; guarded by mutex_
  const Propose propose_;
  std::optional<LoadMeter> meter_;  // guarded by mutex_
  uint64_t period_ = 1;             // of the meter; guarded by mutex_

  std::atomic<uint64_t> pushes_{0};
  std::atomic<uint64_t> results_{0};
  std::atomic<uint64_t> bytes_pushed_{0};
  std::atomic<uint64_t> bytes_pulled_{0};
  std::atomic<uint64_t> rebalances_{0};

  Dispatcher dispatcher_;  // after all that StartPartition uses
};

}  // namespace byteps

#endif  // BYTEPS_WORKER_WORKER_CLIENT_H_

// One process's part of a job: owns its transports, its membership view, and,
// by role, the worker client and the summation server.
//
// Owned by the Python module, which keeps it in runtime/current_runtime for the
// TensorFlow kernels. Any thread may call any method. A process of the job that
// dies or leaves is told to the client and the server, whose operations then
// fail with a sentence that names it.
//
// Shutdown, in this order: no new operations → what others still wait for from
// here fails → the server's reduce threads finish → goodbye to every peer → the
// transports flush and close → the timeline → memory.
#ifndef BYTEPS_RUNTIME_RUNTIME_H_
#define BYTEPS_RUNTIME_RUNTIME_H_

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "csrc/base/config.h"
#include "csrc/base/status.h"
#include "csrc/base/timeline.h"
#include "csrc/control/clock_offset.h"
#include "csrc/control/coordinator.h"
#include "csrc/control/membership.h"
#include "csrc/control/rebalance.h"
#include "csrc/memory/shared_region.h"
#include "csrc/server/summation_server.h"
#include "csrc/transport/loopback/loopback_transport.h"
#include "csrc/transport/transport.h"
#include "csrc/worker/worker_client.h"

namespace byteps {

class Runtime : private Receiver {
 public:
  // Listens, connects, and waits until every process of the job is ready, at
  // most config.start_timeout_ms.
  // `check` is called now and then during the wait, on the same thread and
  // without a lock; its error ends the start.
  static Result<std::shared_ptr<Runtime>> Start(
      const Config& config, const std::function<Status()>& check = nullptr);

  ~Runtime() override;  // closes

  const Config& config() const { return config_; }

  // See worker/worker_client.h. FailedPrecondition on a server.
  void PushPull(PushPullRequest request, StatusCallback done);
  void Allgather(AllgatherRequest request, StatusCallback done);
  void Join(JoinCallback done);
  // Asks the coordinator for these shares of the servers; see
  // control/rebalance.h. It heeds the first of several that come at once.
  void Propose(std::vector<uint64_t> shares);

  // Records into a file of `directory` what this process does from now on; see
  // base/timeline.h.
  Status StartTimeline(const std::string& directory);
  void StopTimeline() { timeline_.Stop(); }
  // A better name for a tensor, in timelines.
  void Label(const std::string& name, const std::string& label) {
    timeline_.Label(name, label);
  }

  // For a dedicated server: true once all workers have left, false when
  // `timeout_ms` passed before; an error if a process was lost.
  Result<bool> WaitUntilFinished(int64_t timeout_ms);

  // The loss that ended the job for this process, or OK.
  Status failure() const;

  // Null by role.
  const WorkerClient* client() const { return client_.get(); }
  const SummationServer* server() const { return server_.get(); }

  // Payload bytes that stayed in shared memory on their way from here.
  uint64_t bytes_shared() const {
    return region_ == nullptr ? 0 : region_->shown_bytes.load();
  }

  // Leaves the job in order. Idempotent; returns when all is done and every
  // callback has fired. Not from a callback.
  void Close();

 private:
  explicit Runtime(const Config& config);

  Status Connect();
  Status WaitUntilStarted(const std::function<Status()>& check);
  std::vector<ProcessName> Missing() const;  // mutex_ held
  void ReportReadyIfConnected();
  void ReadyAtCoordinator(const ProcessName& who);
  void Begin(int64_t wall_ns);
  // Asks the coordinator for its time, for the timeline.
  void MeasureClock();
  void TimeAnswered(Peer* peer, const TimeBody& time);
  void ArrivedRebalance(Peer* peer, Kind kind, RebalanceBody body);
  // At the coordinator.
  void Proposed(std::vector<uint64_t> shares);
  void Prepared(uint32_t rank, const RebalanceBody& answer);
  void SendCommit(const RebalanceBody& commit);
  void SendToWorkers(Kind kind, const RebalanceBody& body);

  void Joined(Peer* peer) override;
  Landing Land(Peer* peer, const Header& header) override;
  void Arrived(Peer* peer, const Header& header,
               const Landing& landing) override;
  void Abandoned(Peer* peer, const Header& header,
                 const Landing& landing) override;
  void Lost(Peer* peer, const Status& why) override;
  void Refused(Peer* peer, const Status& why) override;

  void ArrivedControl(Peer* peer, const Header& header,
                      const std::vector<uint8_t>& body);
  void ProcessLeft(Peer* peer);
  // `who` is gone for a reason that is not its own wish: everything fails, and
  // the others hear of it.
  void ProcessLost(const ProcessName& who, const Status& why);
  void Fail(const Status& why);
  void SendControl(Peer* peer, Kind kind, std::vector<uint8_t> body);
  std::vector<Peer*> LivePeers() const;  // without self

  const Config config_;
  const std::vector<ProcessName> required_;
  Timeline timeline_;  // before all that record into it
  // Null: none. Outlives what hands out its memory.
  const std::shared_ptr<SharedRegion> region_;
  std::unique_ptr<SummationServer> server_;
  std::unique_ptr<WorkerClient> client_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Membership membership_;                // guarded by mutex_
  Coordinator coordinator_;              // guarded by mutex_
  Rebalance rebalance_;                  // guarded by mutex_
  ClockOffset clock_offset_;             // guarded by mutex_
  std::map<ProcessName, Peer*> dialed_;  // guarded by mutex_
  std::map<ProcessName, Peer*> peers_;   // guarded by mutex_
  bool ready_sent_ = false;              // guarded by mutex_
  bool started_ = false;                 // guarded by mutex_
  bool closing_ = false;                 // guarded by mutex_
  Status failure_;                       // guarded by mutex_

  std::mutex close_mutex_;  // held by the one that closes
  bool closed_ = false;     // guarded by close_mutex_

  // Last, so that their threads end before what they call is destroyed.
  LoopbackHub loopback_hub_;
  std::unique_ptr<Transport> loopback_;
  std::unique_ptr<Transport> tcp_;
};

}  // namespace byteps

#endif  // BYTEPS_RUNTIME_RUNTIME_H_

#include "csrc/runtime/runtime.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/control/rendezvous.h"
#include "csrc/transport/tcp/tcp_transport.h"
#include "csrc/wire/messages.h"
#include "csrc/worker/shares.h"

namespace byteps {
namespace {

// How often a process that waits for others says so.
constexpr int64_t kWaitingNoticeMs = 30000;
// How often `check` is called during the start.
constexpr int64_t kCheckMs = 100;
// How long Close lets peers read what was sent to them.
constexpr int64_t kFlushMs = 3000;
// How often a process asks for the coordinator's time. The quickest answer
// counts.
constexpr int kTimeQuestions = 16;
// A report of a loss or a goodbye is short; anything longer is no report.
constexpr uint64_t kMaxControlBytes = 1 << 16;
// A rebalance names every tensor.
constexpr uint64_t kMaxRebalanceBytes = 1 << 26;

std::chrono::steady_clock::time_point At(int64_t ms) {
  return std::chrono::steady_clock::time_point(std::chrono::milliseconds(ms));
}

// Whether that many servers can have these shares.
bool AreShares(const std::vector<uint64_t>& shares, uint32_t num_servers) {
  uint64_t sum = 0;
  for (uint64_t share : shares) {
    if (share > kWholeModel) return false;
    sum += share;
  }
  return shares.size() == num_servers && sum == kWholeModel;
}

// Null if it is not wanted, or this host has none.
std::shared_ptr<SharedRegion> MakeRegion(const Config& config) {
  if (!config.shared_memory || RequiredPeers(config).empty()) return nullptr;
  auto region = SharedRegion::Make(SharedRegion::kDefaultBytes);
  if (region.ok()) return region.value();
  LogDebug(region.status().message());
  return nullptr;
}

}  // namespace

Runtime::Runtime(const Config& config)
    : config_(config),
      required_(RequiredPeers(config)),
      timeline_(config),
      region_(MakeRegion(config)),
      membership_(config),
      coordinator_(config),
      rebalance_(config) {
  if (config_.is_server()) {
    server_ = std::make_unique<SummationServer>(config_, &timeline_, region_);
  }
  if (config_.is_worker()) {
    client_ = std::make_unique<WorkerClient>(
        config_, &timeline_,
        [this](std::vector<uint64_t> shares) { Propose(std::move(shares)); });
  }
}

Runtime::~Runtime() { Close(); }

Result<std::shared_ptr<Runtime>> Runtime::Start(
    const Config& config, const std::function<Status()>& check) {
  std::shared_ptr<Runtime> runtime(new Runtime(config));
  Status status;
  // From the first push on: the others may be quicker.
  if (!config.timeline.empty()) {
    status = runtime->timeline_.Start(config.timeline);
  }
  if (status.ok()) status = runtime->Connect();
  if (status.ok()) status = runtime->WaitUntilStarted(check);
  if (!status.ok()) {
    runtime->Close();
    return status;
  }
  return runtime;
}

Status Runtime::Connect() {
  // Pushes may come before this process hears of the start: a peer that knew
  // first may be quick.
  if (server_ != nullptr) server_->Start(kFirstMembershipEpoch);
  tcp_ = MakeTcpTransport(config_, this, region_);
  if (!required_.empty()) {
    Status status = tcp_->Listen(config_.address(config_.self));
    if (!status.ok()) {
      return Status(status.code(),
                    ToString(config_.self) + " " + status.message());
    }
  }
  if (client_ != nullptr && server_ != nullptr) {
    loopback_ = MakeLoopbackTransport(config_, this, &loopback_hub_);
    Status status = loopback_->Listen(config_.address(config_.self));
    if (!status.ok()) return status;
    loopback_->Dial(config_.self, config_.address(config_.self));
  }
  for (const ProcessName& name : required_) {
    if (!ShouldDial(config_.self, name)) continue;
    Peer* peer = tcp_->Dial(name, config_.address(name));
    std::lock_guard<std::mutex> lock(mutex_);
    dialed_[name] = peer;
  }
  ReportReadyIfConnected();
  return OkStatus();
}

std::vector<ProcessName> Runtime::Missing() const {
  std::vector<ProcessName> missing = membership_.Absent(required_);
  if (!missing.empty()) return missing;
  // Everybody is connected here, so what is missing are others' connections.
  // Only the coordinator knows whose.
  if (config_.self == config_.coordinator()) return coordinator_.NotReady();
  return {config_.coordinator()};
}

Status Runtime::WaitUntilStarted(const std::function<Status()>& check) {
  const int64_t deadline = NowMs() + config_.start_timeout_ms;
  int64_t notice = NowMs() + kWaitingNoticeMs;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!started_ && failure_.ok() && !closing_) {
    changed_.wait_until(lock,
                        At(std::min({deadline, notice, NowMs() + kCheckMs})));
    if (started_ || !failure_.ok() || closing_) break;
    if (check != nullptr) {
      lock.unlock();
      const Status status = check();
      if (!status.ok()) return status;
      lock.lock();
    }
    const int64_t now = NowMs();
    if (now < std::min(deadline, notice)) continue;
    const std::string waiting =
        WaitingText(config_, Missing(), [this](const ProcessName& name) {
          auto it = dialed_.find(name);
          if (membership_.Absent({name}).empty()) {
            return std::string("it waits for others");
          }
          return it == dialed_.end() ? std::string() : it->second->progress();
        });
    if (now >= deadline) {
      return DeadlineExceeded(waiting + ": gave up after " +
                              std::to_string(config_.start_timeout_ms / 1000) +
                              " s (start_timeout)");
    }
    LogWarning(waiting);
    notice = now + kWaitingNoticeMs;
  }
  if (!failure_.ok()) return failure_;
  if (closing_) return Cancelled("shut down during the start");
  return OkStatus();
}

void Runtime::ReportReadyIfConnected() {
  Peer* coordinator = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    // Others may be connected before this process is to itself.
    const bool self_missing = client_ != nullptr && server_ != nullptr &&
                              peers_.count(config_.self) == 0;
    if (ready_sent_ || self_missing || !failure_.ok() ||
        !membership_.Absent(required_).empty()) {
      return;
    }
    ready_sent_ = true;
    if (config_.self != config_.coordinator()) {
      coordinator = peers_[config_.coordinator()];
    }
  }
  if (client_ != nullptr) {
    std::vector<Peer*> servers;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (uint32_t i = 0; i < config_.num_servers(); ++i) {
        servers.push_back(peers_[config_.server_name(i)]);
      }
    }
    client_->Start(std::move(servers), kFirstMembershipEpoch);
  }
  if (coordinator != nullptr) {
    SendControl(coordinator, Kind::kReady, {});
  } else {
    ReadyAtCoordinator(config_.self);
  }
}

void Runtime::ReadyAtCoordinator(const ProcessName& who) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!coordinator_.Ready(who)) return;
  }
  const int64_t wall_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(
          std::chrono::system_clock::now().time_since_epoch())
          .count();
  for (Peer* peer : LivePeers()) {
    SendControl(peer, Kind::kStart, Encode(StartBody{wall_ns}));
  }
  Begin(wall_ns);
}

void Runtime::Begin(int64_t wall_ns) {
  timeline_.SetJob(wall_ns);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    started_ = true;
  }
  changed_.notify_all();
  if (!config_.timeline.empty()) MeasureClock();
}

Status Runtime::StartTimeline(const std::string& directory) {
  Status status = timeline_.Start(directory);
  if (status.ok()) MeasureClock();
  return status;
}

void Runtime::MeasureClock() {
  Peer* coordinator = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    clock_offset_ = ClockOffset();
    auto it = peers_.find(config_.coordinator());
    if (it != peers_.end()) coordinator = it->second;
  }
  if (config_.self == config_.coordinator()) {
    timeline_.SetClock(0, 0);
  } else if (coordinator != nullptr) {
    SendControl(coordinator, Kind::kAskTime, Encode(TimeBody{NowNs(), 0}));
  }
}

void Runtime::TimeAnswered(Peer* peer, const TimeBody& time) {
  ClockOffset offset;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    clock_offset_.Add(time.asked_ns, time.answered_ns, NowNs());
    offset = clock_offset_;
  }
  // Each may be the last in a short recording; of several the last one counts.
  timeline_.SetClock(offset.offset_ns(), offset.error_ns());
  if (offset.samples() < kTimeQuestions) {
    SendControl(peer, Kind::kAskTime, Encode(TimeBody{NowNs(), 0}));
  }
}

void Runtime::PushPull(PushPullRequest request, StatusCallback done) {
  if (client_ == nullptr) {
    done(FailedPrecondition("a server has no tensors to push"));
    return;
  }
  client_->PushPull(std::move(request), std::move(done));
}

void Runtime::Allgather(AllgatherRequest request, StatusCallback done) {
  if (client_ == nullptr) {
    done(FailedPrecondition("a server has no tensors to gather"));
    return;
  }
  client_->Allgather(std::move(request), std::move(done));
}

void Runtime::Join(JoinCallback done) {
  if (client_ == nullptr) {
    done(FailedPrecondition("a server joins nothing"));
    return;
  }
  client_->Join(std::move(done));
}

void Runtime::Propose(std::vector<uint64_t> shares) {
  if (config_.self == config_.coordinator()) {
    Proposed(std::move(shares));
    return;
  }
  Peer* coordinator = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!started_ || membership_.IsGone(config_.coordinator())) return;
    coordinator = peers_[config_.coordinator()];
  }
  SendControl(coordinator, Kind::kPropose,
              Encode(RebalanceBody{0, std::move(shares), {}}));
}

void Runtime::Proposed(std::vector<uint64_t> shares) {
  std::optional<RebalanceBody> prepare;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!started_ || closing_ || !failure_.ok() ||
        !AreShares(shares, config_.num_servers())) {
      return;
    }
    prepare = rebalance_.Propose(std::move(shares));
  }
  if (!prepare.has_value()) return;
  SendToWorkers(Kind::kPrepare, *prepare);
  if (client_ == nullptr) return;
  Prepared(config_.self.index, client_->Hold(prepare->version));
}

void Runtime::Prepared(uint32_t rank, const RebalanceBody& answer) {
  std::optional<RebalanceBody> commit;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    commit = rebalance_.Answered(rank, answer);
  }
  if (commit.has_value()) SendCommit(*commit);
}

void Runtime::SendCommit(const RebalanceBody& commit) {
  SendToWorkers(Kind::kCommit, commit);
  if (client_ != nullptr) client_->Commit(commit);
  std::lock_guard<std::mutex> lock(mutex_);
  rebalance_.Committed();
}

void Runtime::SendToWorkers(Kind kind, const RebalanceBody& body) {
  for (Peer* peer : LivePeers()) {
    if (peer->name().role == Role::kWorker) {
      SendControl(peer, kind, Encode(body));
    }
  }
}

void Runtime::ArrivedRebalance(Peer* peer, Kind kind, RebalanceBody body) {
  const bool from_coordinator = peer->name() == config_.coordinator();
  const bool at_coordinator = config_.self == config_.coordinator();
  const bool from_worker = peer->name().role == Role::kWorker;
  if (kind == Kind::kPropose && at_coordinator && from_worker) {
    Proposed(std::move(body.shares));
  } else if (kind == Kind::kPrepared && at_coordinator && from_worker) {
    Prepared(peer->name().index, body);
  } else if (client_ == nullptr || !from_coordinator) {
    LogWarning(peer->label() +
               " takes this process for another in a rebalance");
  } else if (!AreShares(body.shares, config_.num_servers())) {
    // Who waits for what this rebalance holds would wait for ever.
    ProcessLost(peer->name(),
                Unavailable(peer->label() + " sent shares that cannot be"));
  } else if (kind == Kind::kPrepare) {
    SendControl(peer, Kind::kPrepared, Encode(client_->Hold(body.version)));
  } else if (kind == Kind::kCommit) {
    client_->Commit(body);
  }
}

Result<bool> Runtime::WaitUntilFinished(int64_t timeout_ms) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_until(lock, At(NowMs() + timeout_ms), [this] {
    return closing_ || membership_.AllOtherWorkersGone();
  });
  const bool finished = closing_ || membership_.AllOtherWorkersGone();
  // The survivors of a loss are still served, with errors, until they leave.
  if (finished && !failure_.ok()) return failure_;
  return finished;
}

Status Runtime::failure() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

std::vector<Peer*> Runtime::LivePeers() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Peer*> live;
  for (const auto& entry : peers_) {
    if (entry.first == config_.self || membership_.IsGone(entry.first))
      continue;
    live.push_back(entry.second);
  }
  return live;
}

void Runtime::SendControl(Peer* peer, Kind kind, std::vector<uint8_t> body) {
  auto kept = std::make_shared<std::vector<uint8_t>>(std::move(body));
  Header header;
  header.kind = kind;
  header.membership_epoch = kFirstMembershipEpoch;
  header.payload_bytes = kept->size();
  // A peer that cannot be told is lost, and Lost says so.
  peer->transport()->Send(peer, header, kept->data(), [kept](Status) {});
}

void Runtime::Joined(Peer* peer) {
  const ProcessName& name = peer->name();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    peers_[name] = peer;
    membership_.Join(name);
  }
  LogDebug(peer->label() + " is connected");
  if (server_ != nullptr && name.role == Role::kWorker) {
    server_->AddWorker(name.index, peer);
  }
  ReportReadyIfConnected();
}

Landing Runtime::Land(Peer* peer, const Header& header) {
  switch (header.kind) {
    case Kind::kDeclare:
    case Kind::kPush:
    case Kind::kCancel:
    case Kind::kJoin:
      if (server_ == nullptr) break;
      return server_->Land(peer, header);
    case Kind::kResult:
    case Kind::kRoundError:
    case Kind::kStall:
    case Kind::kJoined:
    case Kind::kJoinError:
      if (client_ == nullptr) break;
      return client_->Land(peer, header);
    case Kind::kReady:
    case Kind::kStart:
    case Kind::kGoodbye:
    case Kind::kAskTime:
    case Kind::kTime:
    case Kind::kPropose:
    case Kind::kPrepare:
    case Kind::kPrepared:
    case Kind::kCommit:
    case Kind::kLost: {
      const bool rebalance =
          header.kind == Kind::kPrepared || header.kind == Kind::kCommit;
      if (header.payload_bytes >
          (rebalance ? kMaxRebalanceBytes : kMaxControlBytes)) {
        break;
      }
      auto* body = new std::vector<uint8_t>(header.payload_bytes);
      return Landing{true, body->data(), body};
    }
    case Kind::kPing:
    case Kind::kShare:
    case Kind::kShared:
    case Kind::kReturned:
      break;
  }
  Landing refused;
  refused.accept = false;
  return refused;
}

void Runtime::Arrived(Peer* peer, const Header& header,
                      const Landing& landing) {
  switch (header.kind) {
    case Kind::kDeclare:
    case Kind::kPush:
    case Kind::kCancel:
    case Kind::kJoin:
      server_->Arrived(peer, header, landing);
      break;
    case Kind::kResult:
    case Kind::kRoundError:
    case Kind::kStall:
    case Kind::kJoined:
    case Kind::kJoinError:
      client_->Arrived(peer, header, landing);
      break;
    default: {
      std::unique_ptr<std::vector<uint8_t>> body(
          static_cast<std::vector<uint8_t>*>(landing.context));
      ArrivedControl(peer, header, *body);
    }
  }
}

void Runtime::Abandoned(Peer* peer, const Header& header,
                        const Landing& landing) {
  switch (header.kind) {
    case Kind::kDeclare:
    case Kind::kPush:
    case Kind::kCancel:
    case Kind::kJoin:
      server_->Abandoned(peer, header, landing);
      break;
    case Kind::kResult:
    case Kind::kRoundError:
    case Kind::kStall:
    case Kind::kJoined:
    case Kind::kJoinError:
      client_->Abandoned(peer, header, landing);
      break;
    default:
      delete static_cast<std::vector<uint8_t>*>(landing.context);
  }
}

void Runtime::ArrivedControl(Peer* peer, const Header& header,
                             const std::vector<uint8_t>& body) {
  switch (header.kind) {
    case Kind::kReady:
      ReadyAtCoordinator(peer->name());
      break;
    case Kind::kStart:
      if (peer->name() == config_.coordinator()) {
        Result<StartBody> start = DecodeStart(body.data(), body.size());
        Begin(start.ok() ? start.value().wall_ns : 0);
      }
      break;
    case Kind::kGoodbye:
      ProcessLeft(peer);
      break;
    case Kind::kAskTime:
    case Kind::kTime: {
      Result<TimeBody> time = DecodeTime(body.data(), body.size());
      if (!time.ok()) {
        LogWarning(peer->label() + " sent " + time.status().message());
      } else if (header.kind == Kind::kTime) {
        TimeAnswered(peer, time.value());
      } else {
        time.value().answered_ns = NowNs();
        SendControl(peer, Kind::kTime, Encode(time.value()));
      }
      break;
    }
    case Kind::kPropose:
    case Kind::kPrepare:
    case Kind::kPrepared:
    case Kind::kCommit: {
      Result<RebalanceBody> rebalance =
          DecodeRebalance(body.data(), body.size());
      if (!rebalance.ok()) {
        // Others would wait for an answer that cannot come.
        ProcessLost(peer->name(), Unavailable(peer->label() + " sent " +
                                              rebalance.status().message()));
      } else {
        ArrivedRebalance(peer, header.kind, std::move(rebalance.value()));
      }
      break;
    }
    case Kind::kLost: {
      Result<LossBody> loss = DecodeLoss(body.data(), body.size());
      if (!loss.ok()) {
        LogWarning(peer->label() + " sent " + loss.status().message());
        break;
      }
      ProcessLost(loss.value().who, Unavailable(loss.value().reason));
      break;
    }
    default:
      break;
  }
}

void Runtime::ProcessLeft(Peer* peer) {
  const ProcessName name = peer->name();
  peer->transport()->ExpectEnd(peer);
  const Status why = Unavailable(peer->label() + " left the job");
  bool before_start = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!membership_.Leave(name)) return;
    before_start = !started_;
    if (before_start && failure_.ok()) {
      failure_ = Unavailable(peer->label() + " left before the job started");
    }
  }
  changed_.notify_all();
  if (server_ != nullptr && name.role == Role::kWorker) {
    server_->WorkerLeft(name.index, why);
  }
  if (name.role == Role::kWorker) {
    std::optional<RebalanceBody> commit;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      commit = rebalance_.Left(name.index);
    }
    if (commit.has_value()) SendCommit(*commit);
  }
  // A worker that leaves has taken all its results, but a sum that is on its
  // way to here from another server is still good: only what its own server
  // owes is void.
  if (client_ != nullptr && config_.serves(name)) {
    client_->ServerLeft(config_.server_index(name), why);
  }
}

void Runtime::Lost(Peer* peer, const Status& why) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    // The end of what is closing here, or of who said goodbye, is no loss.
    if (closing_ || membership_.IsGone(peer->name())) return;
  }
  ProcessLost(peer->name(), why);
}

void Runtime::ProcessLost(const ProcessName& who, const Status& why) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closing_ || !membership_.Knows(who) || !membership_.Lose(who)) return;
  }
  LogError(why.message());
  Fail(why);
  std::vector<Peer*> told = LivePeers();
  if (config_.self != config_.coordinator()) {
    // The coordinator tells the others.
    told.erase(std::remove_if(told.begin(), told.end(),
                              [this](Peer* peer) {
                                return peer->name() != config_.coordinator();
                              }),
               told.end());
  }
  for (Peer* peer : told) {
    SendControl(peer, Kind::kLost, Encode(LossBody{who, why.message()}));
  }
}

void Runtime::Refused(Peer* peer, const Status& why) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closing_ || membership_.IsGone(peer->name())) return;
  }
  Fail(why);
}

void Runtime::Fail(const Status& why) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (failure_.ok()) failure_ = why;
  }
  changed_.notify_all();
  if (server_ != nullptr) server_->Fail(why);
  if (client_ != nullptr) client_->Fail(why);
}

void Runtime::Close() {
  std::lock_guard<std::mutex> closing(close_mutex_);
  if (closed_) return;
  closed_ = true;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (client_ != nullptr) {
    client_->Fail(Cancelled("tf_byteps was shut down in this process"));
    client_->Close();
  }
  if (server_ != nullptr) {
    if (config_.is_worker()) {
      server_->WorkerLeft(
          config_.self.index,
          Unavailable(ToString(config_.self) + " (" +
                      config_.address(config_.self) + ") left the job"));
    }
    server_->Close();
    server_->Join();
  }
  for (Peer* peer : LivePeers()) {
    SendControl(peer, Kind::kGoodbye, {});
    peer->transport()->ExpectEnd(peer);
  }
  if (tcp_ != nullptr) {
    tcp_->Close(std::min(kFlushMs, config_.failure_timeout_ms));
  }
  if (loopback_ != nullptr) loopback_->Close(0);
  timeline_.Stop();
}

}  // namespace byteps

#include "csrc/transport/tcp/tcp_transport.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/thread.h"
#include "csrc/transport/fork_safe.h"
#include "csrc/transport/tcp/greeter.h"
#include "csrc/transport/tcp/poller.h"
#include "csrc/transport/tcp/region_exchange.h"
#include "csrc/transport/tcp/socket.h"
#include "csrc/transport/tcp/tcp_peer.h"

namespace byteps {
namespace {

constexpr int64_t kNever = Greeter::kNever;

// Thread model: everything below "the transport's thread" happens there; other
// threads reach it through commands_ and the poller's Wake.
class TcpTransport final : private PeerOwner, private GreeterOwner {
 public:
  TcpTransport(Transport* self, const Config& config, Receiver* receiver,
               std::shared_ptr<SharedRegion> region);
  ~TcpTransport() override;

  Status Listen(const std::string& address);
  Peer* Dial(const ProcessName& name, const std::string& address);
  void Send(Peer* peer, const Header& header, const void* payload,
            StatusCallback sent);
  void ExpectEnd(Peer* peer);
  void Close(int64_t timeout_ms);

 private:
  void Post(std::function<void()> command) override;  // any thread
  TcpPeer* NewPeer(const ProcessName& name, const std::string& address);

  // ---- The transport's thread.
  void Run();
  void RunCommands();
  int64_t RunTimers(int64_t now);  // when to be called again
  bool finished() const { return closing_ && active_.empty(); }

  Admission MayConnect(const ProcessName& name) override;
  int Connected(TcpPeer* dialed, const ProcessName& name, Socket socket,
                const std::vector<uint8_t>& rest) override;
  void Refused(TcpPeer* dialed, const std::string& why) override;
  TcpPeer* FindActive(const ProcessName& name) const;
  void TakeRegion(const Ticket& ticket, int fd);

  void Broken(TcpPeer* peer, const Status& why) override;
  void NeedAttention() override;  // any thread
  void AttendAll();
  void BeginClose(int64_t deadline_ms);
  void CloseNow();

  Transport* const self_;
  const Config config_;
  Receiver* const receiver_;
  Poller poller_;
  Greeter greeter_;
  RegionExchange exchange_;

  std::mutex mutex_;
  std::vector<std::function<void()>> commands_;  // guarded by mutex_
  std::vector<std::unique_ptr<TcpPeer>> peers_;  // guarded by mutex_
  std::atomic<bool> attention_{false};

  // The transport's thread only.
  std::vector<TcpPeer*> active_;  // opened and not yet lost
  int64_t due_ms_ = kNever;       // when RunTimers is to be called
  int64_t liveness_ms_ = 0;
  bool closing_ = false;
  int64_t close_deadline_ms_ = kNever;

  std::mutex close_mutex_;
  bool closed_ = false;             // guarded by close_mutex_
  std::unique_ptr<Thread> thread_;  // null if poller_ failed
};

TcpTransport::TcpTransport(Transport* self, const Config& config,
                           Receiver* receiver,
                           std::shared_ptr<SharedRegion> region)
    : self_(self),
      config_(config),
      receiver_(receiver),
      greeter_(config, &poller_, this),
      exchange_(
          std::move(region), &poller_,
          [this](const Ticket& ticket, int fd) { TakeRegion(ticket, fd); }) {
  if (poller_.status().ok()) {
    thread_ = std::make_unique<Thread>("bps-tcp", [this] { Run(); });
  }
}

TcpTransport::~TcpTransport() { Close(0); }

void TcpTransport::Post(std::function<void()> command) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    commands_.push_back(std::move(command));
  }
  poller_.Wake();
}

TcpPeer* TcpTransport::NewPeer(const ProcessName& name,
                               const std::string& address) {
  PeerOwner* owner = this;
  auto peer = std::make_unique<TcpPeer>(self_, owner, &poller_, receiver_,
                                        &exchange_, config_, name, address);
  TcpPeer* raw = peer.get();
  std::lock_guard<std::mutex> lock(mutex_);
  peers_.push_back(std::move(peer));
  return raw;
}

Status TcpTransport::Listen(const std::string& address) {
  if (!poller_.status().ok()) return poller_.status();
  return greeter_.Listen(address);
}

Peer* TcpTransport::Dial(const ProcessName& name, const std::string& address) {
  TcpPeer* peer = NewPeer(name, address);
  if (!poller_.status().ok()) {
    peer->SetProgress(poller_.status().message());
    return peer;
  }
  Post([this, peer, address] {
    if (closing_) {
      peer->EndUnopened(Cancelled("the transport is closed"));
      return;
    }
    greeter_.Dial(peer, address);
  });
  return peer;
}

void TcpTransport::Send(Peer* peer, const Header& header, const void* payload,
                        StatusCallback sent) {
  static_cast<TcpPeer*>(peer)->Send(header, payload, std::move(sent));
}

void TcpTransport::ExpectEnd(Peer* peer) {
  static_cast<TcpPeer*>(peer)->ExpectEnd();
}

void TcpTransport::Close(int64_t timeout_ms) {
  std::lock_guard<std::mutex> lock(close_mutex_);
  if (closed_) return;
  closed_ = true;
  if (thread_ == nullptr) return;
  const int64_t deadline = NowMs() + std::max<int64_t>(0, timeout_ms);
  Post([this, deadline] { BeginClose(deadline); });
  thread_->Join();
  greeter_.CloseResolver();
}

// ---- The transport's thread: the loop

void TcpTransport::Run() {
  while (!finished()) {
    const int64_t due = std::min(due_ms_, greeter_.due_ms());
    poller_.Wait(due == kNever ? -1 : std::max<int64_t>(0, due - NowMs()));
    RunCommands();
    if (attention_.exchange(false)) AttendAll();
    const int64_t now = NowMs();
    if (now >= greeter_.due_ms()) greeter_.RunTimers(now);
    if (now >= due_ms_) due_ms_ = RunTimers(now);
    greeter_.Tidy();
  }
}

void TcpTransport::RunCommands() {
  std::vector<std::function<void()>> commands;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    commands.swap(commands_);
  }
  for (auto& command : commands) command();
}

int64_t TcpTransport::RunTimers(int64_t now) {
  int64_t due = close_deadline_ms_;
  if (closing_ && now >= close_deadline_ms_) {
    CloseNow();
    due = kNever;
  }
  if (!active_.empty() && now >= liveness_ms_) {
    const std::vector<TcpPeer*> peers = active_;
    for (TcpPeer* peer : peers) {
      if (!peer->ending()) peer->CheckLiveness(now);
    }
    liveness_ms_ = now + Liveness::IntervalMs(config_.failure_timeout_ms);
  }
  return active_.empty() ? due : std::min(due, liveness_ms_);
}

// ---- The transport's thread: beginnings

GreeterOwner::Admission TcpTransport::MayConnect(const ProcessName& name) {
  TcpPeer* twin = FindActive(name);
  if (twin != nullptr) {
    // The end of its former connection may be waiting to be read.
    twin->ReadNow();
    twin = FindActive(name);
  }
  if (twin == nullptr) return Admission::kWelcome;
  return twin->ending() ? Admission::kLater : Admission::kConnectedAlready;
}

int TcpTransport::Connected(TcpPeer* dialed, const ProcessName& name,
                            Socket socket, const std::vector<uint8_t>& rest) {
  TcpPeer* peer =
      dialed != nullptr ? dialed : NewPeer(name, config_.address(name));
  const int error = peer->Open(std::move(socket));
  if (error != 0) return error;
  active_.push_back(peer);
  liveness_ms_ = std::min(
      liveness_ms_, NowMs() + Liveness::IntervalMs(config_.failure_timeout_ms));
  due_ms_ = std::min(due_ms_, liveness_ms_);
  receiver_->Joined(peer);
  peer->OfferToShare();
  if (!rest.empty()) peer->TakeIn(rest.data(), rest.size());
  return 0;
}

void TcpTransport::Refused(TcpPeer* dialed, const std::string& why) {
  const Status status = FailedPrecondition(why);
  dialed->SetProgress(why);
  dialed->EndUnopened(status);
  receiver_->Refused(dialed, status);
}

TcpPeer* TcpTransport::FindActive(const ProcessName& name) const {
  for (TcpPeer* peer : active_) {
    if (peer->name() == name) return peer;
  }
  return nullptr;
}

void TcpTransport::TakeRegion(const Ticket& ticket, int fd) {
  for (TcpPeer* peer : active_) {
    if (!peer->ending() && peer->HasTicket(ticket)) return peer->TakeRegion(fd);
  }
  close(fd);
}

// ---- The transport's thread: ends

void TcpTransport::Broken(TcpPeer* peer, const Status& why) {
  peer->BeginEnd(why);
  // Left in active_ until Lost is said, then removed: by AttendAll if a
  // thread's Send is under way.
  if (!peer->FinishEnd()) return;
  active_.erase(std::remove(active_.begin(), active_.end(), peer),
                active_.end());
}

void TcpTransport::NeedAttention() {
  if (!attention_.exchange(true)) poller_.Wake();
}

void TcpTransport::AttendAll() {
  const std::vector<TcpPeer*> peers = active_;
  for (TcpPeer* peer : peers) {
    if (!peer->ending()) {
      peer->Attend();
    } else if (peer->FinishEnd()) {
      active_.erase(std::remove(active_.begin(), active_.end(), peer),
                    active_.end());
    }
  }
}

void TcpTransport::BeginClose(int64_t deadline_ms) {
  closing_ = true;
  close_deadline_ms_ = deadline_ms;
  due_ms_ = std::min(due_ms_, deadline_ms);
  for (TcpPeer* peer : greeter_.Close()) {
    const Status why = Cancelled(peer->label() +
                                 " was not connected when this process closed");
    peer->EndUnopened(why);
    receiver_->Lost(peer, why);
  }
  for (TcpPeer* peer : active_) peer->BeginClose();
  AttendAll();
  if (NowMs() >= deadline_ms) CloseNow();
}

void TcpTransport::CloseNow() {
  const std::vector<TcpPeer*> peers = active_;
  for (TcpPeer* peer : peers) {
    Broken(peer,
           Cancelled("this process closed its connection to " + peer->label()));
  }
}

}  // namespace

std::unique_ptr<Transport> MakeTcpTransport(
    const Config& config, Receiver* receiver,
    std::shared_ptr<SharedRegion> region) {
  return std::make_unique<ForkSafe<TcpTransport>>(config, receiver,
                                                  std::move(region));
}

}  // namespace byteps

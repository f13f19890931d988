#include "csrc/transport/loopback/loopback_transport.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "csrc/base/queue.h"
#include "csrc/base/thread.h"

namespace byteps {
namespace {

struct LoopbackPeer : Peer {
  LoopbackPeer(Transport* transport, ProcessName name, std::string label)
      : Peer(transport, name, std::move(label)) {}
  std::string progress() const override { return "nobody listens there"; }

  // Guarded by the hub's mutex.
  LoopbackTransport* other_side = nullptr;  // null: not joined, or over
  LoopbackPeer* other_peer = nullptr;       // as the other side sees us
  bool expect_end = false;
};

}  // namespace

class LoopbackTransport : public Transport {
 public:
  LoopbackTransport(const Config& config, Receiver* receiver, LoopbackHub* hub)
      : config_(config), receiver_(receiver), hub_(hub), pid_(getpid()) {
    thread_ = Thread("bps-loopback", [this] { Run(); });
  }

  ~LoopbackTransport() override { Close(0); }

  Status Listen(const std::string& address) override {
    std::lock_guard<std::mutex> lock(hub_->mutex_);
    if (hub_->listening_.count(address) > 0) {
      return FailedPrecondition("cannot listen on " + address +
                                ": Address already in use");
    }
    hub_->listening_[address] = this;
    address_ = address;
    auto waiting = std::move(hub_->waiting_[address]);
    hub_->waiting_.erase(address);
    for (const LoopbackHub::Waiting& w : waiting) {
      JoinLocked(w.dialer, static_cast<LoopbackPeer*>(w.peer));
    }
    return OkStatus();
  }

  Peer* Dial(const ProcessName& name, const std::string& address) override {
    std::lock_guard<std::mutex> lock(hub_->mutex_);
    LoopbackPeer* peer = AddPeerLocked(name, address);
    auto it = hub_->listening_.find(address);
    if (it != hub_->listening_.end()) {
      it->second->JoinLocked(this, peer);
    } else {
      hub_->waiting_[address].push_back({this, peer});
    }
    return peer;
  }

  void Send(Peer* to, const Header& header, const void* payload,
            StatusCallback sent) override {
    auto* peer = static_cast<LoopbackPeer*>(to);
    Status failure;
    {
      std::lock_guard<std::mutex> lock(hub_->mutex_);
      if (getpid() != pid_) {
        failure = FailedPrecondition("a forked child cannot send");
      } else if (peer->other_side == nullptr) {
        failure = Unavailable(peer->label() + " is not connected");
      } else {
        Event event{peer->other_peer, header, payload, std::move(sent),
                    Event::kMessage, OkStatus()};
        if (peer->other_side->events_.Push(event)) return;
        sent = std::move(event.sent);
        failure = Unavailable(peer->label() + " has closed");
      }
    }
    sent(failure);
  }

  void ExpectEnd(Peer* peer) override {
    std::lock_guard<std::mutex> lock(hub_->mutex_);
    static_cast<LoopbackPeer*>(peer)->expect_end = true;
  }

  void Close(int64_t) override {
    {
      std::lock_guard<std::mutex> lock(hub_->mutex_);
      if (!closed_) {
        closed_ = true;
        if (!address_.empty()) hub_->listening_.erase(address_);
        for (auto& entry : hub_->waiting_) {
          auto& waiting = entry.second;
          waiting.erase(std::remove_if(waiting.begin(), waiting.end(),
                                       [this](const LoopbackHub::Waiting& w) {
                                         return w.dialer == this;
                                       }),
                        waiting.end());
        }
        for (auto& peer : peers_) EndLocked(peer.get());
        events_.Close();
      }
    }
    thread_.Join();
  }

 private:
  struct Event {
    enum Type { kJoined, kMessage, kLost };
    LoopbackPeer* peer = nullptr;
    Header header;
    const void* payload = nullptr;
    StatusCallback sent;
    Type type = kMessage;
    Status why;
  };

  LoopbackPeer* AddPeerLocked(const ProcessName& name,
                              const std::string& address) {
    peers_.push_back(std::make_unique<LoopbackPeer>(
        this, name, ToString(name) + " (" + address + ")"));
    return peers_.back().get();
  }

  // `this` listens, `dialer` has found it.
  void JoinLocked(LoopbackTransport* dialer, LoopbackPeer* peer) {
    LoopbackPeer* back = peer;
    if (dialer != this) {
      back = AddPeerLocked(dialer->config_.self,
                           dialer->config_.address(dialer->config_.self));
      back->other_side = dialer;
      back->other_peer = peer;
      Post(Event::kJoined, back, OkStatus());
    }
    peer->other_side = this;
    peer->other_peer = back;
    dialer->Post(Event::kJoined, peer, OkStatus());
  }

  void EndLocked(LoopbackPeer* peer) {
    if (peer->other_side == nullptr) return;
    LoopbackTransport* other_side = peer->other_side;
    LoopbackPeer* other = peer->other_peer;
    peer->other_side = nullptr;
    if (other != peer && other->other_side != nullptr) {
      other->other_side = nullptr;
      other_side->Post(Event::kLost, other,
                       other->expect_end
                           ? Cancelled(other->label() + " has left")
                           : Unavailable(other->label() + " was lost"));
    }
    Post(Event::kLost, peer, Cancelled("the transport was closed"));
  }

  void Post(Event::Type type, LoopbackPeer* peer, Status why) {
    Event event;
    event.type = type;
    event.peer = peer;
    event.why = std::move(why);
    events_.Push(std::move(event));
  }

  void Run() {
    // No deadline: the queue is closed at the end.
    while (!events_.finished()) {
      auto event = events_.PopUntil(NowMs() + (int64_t{1} << 40));
      if (event) Handle(&*event);
    }
  }

  void Handle(Event* event) {
    if (event->type == Event::kJoined) return receiver_->Joined(event->peer);
    if (event->type == Event::kLost) {
      return receiver_->Lost(event->peer, event->why);
    }
    {
      std::lock_guard<std::mutex> lock(hub_->mutex_);
      if (closed_) {
        event->why = Cancelled("the transport was closed");
      }
    }
    if (event->why.ok()) {
      Landing landing;
      landing.accept =
          event->header.payload_bytes <= config_.max_message_bytes;
      if (landing.accept) {
        landing = receiver_->Land(event->peer, event->header);
      }
      if (!landing.accept) {
        event->why = InvalidArgument("the receiver refused a message");
        std::lock_guard<std::mutex> lock(hub_->mutex_);
        EndLocked(event->peer);
      } else {
        if (landing.data != nullptr && event->header.payload_bytes > 0) {
          std::memcpy(landing.data, event->payload,
                      event->header.payload_bytes);
        }
        receiver_->Arrived(event->peer, event->header, landing);
      }
    }
    event->sent(event->why);
  }

  const Config config_;
  Receiver* const receiver_;
  LoopbackHub* const hub_;
  const pid_t pid_;
  std::string address_;                               // guarded by the hub
  bool closed_ = false;                               // guarded by the hub
  std::vector<std::unique_ptr<LoopbackPeer>> peers_;  // guarded by the hub
  Queue<Event> events_;
  Thread thread_;
};

std::unique_ptr<Transport> MakeLoopbackTransport(const Config& config,
                                                 Receiver* receiver,
                                                 LoopbackHub* hub) {
  return std::make_unique<LoopbackTransport>(config, receiver, hub);
}

}  // namespace byteps

#include "csrc/transport/loopback/loopback_transport.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <limits>
#include <mutex>
#include <string>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/base/thread.h"
#include "csrc/transport/describe.h"
#include "csrc/transport/fork_safe.h"
#include "csrc/wire/handshake.h"

namespace byteps {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// One end of a link; the other is its partner (itself, if a process dialed
// itself). Everything is guarded by the hub's mutex.
class LoopbackPeer final : public Peer {
 public:
  LoopbackPeer(Transport* transport, LoopbackTransport* owner,
               const ProcessName& name, const std::string& address)
      : Peer(transport, name, Label(name, address)),
        owner(owner),
        address(address) {}

  std::string progress() const override {
    return waiting.load() ? "nobody listens there" : std::string();
  }

  LoopbackTransport* const owner;
  const std::string address;
  LoopbackPeer* partner = nullptr;  // null unless the link stands
  // Dialed, and nobody listens there yet.
  std::atomic<bool> waiting{true};
  bool end_expected = false;
  bool over = false;        // no more sends; Lost follows once
  bool end_posted = false;  // outstanding sends are completed
  bool told = false;        // Lost or Refused has been said
  int outstanding = 0;      // sends whose `sent` has not returned
  Status why;               // once over
};

struct Event {
  enum class What { kJoined, kMessage, kRefused, kLost };
  What what = What::kMessage;
  LoopbackPeer* peer = nullptr;  // on the side that handles the event
  // kMessage only.
  LoopbackPeer* from = nullptr;
  Header header;
  const void* payload = nullptr;
  StatusCallback sent;
};

}  // namespace

class LoopbackTransport final {
 public:
  LoopbackTransport(Transport* self, const Config& config, Receiver* receiver,
                    LoopbackHub* hub);
  ~LoopbackTransport();

  Status Listen(const std::string& address);
  Peer* Dial(const ProcessName& name, const std::string& address);
  void Send(Peer* peer, const Header& header, const void* payload,
            StatusCallback sent);
  void ExpectEnd(Peer* peer);
  void Close(int64_t timeout_ms);

 private:
  // Hub's mutex held.
  LoopbackPeer* NewPeer(const ProcessName& name, const std::string& address);
  void Post(Event event);
  void Connect(LoopbackPeer* peer, LoopbackTransport* target);
  std::string ObjectionTo(const LoopbackTransport& dialer) const;
  static void EndSide(LoopbackPeer* peer, Code code, const std::string& what);
  static void PostEndIfComplete(LoopbackPeer* peer);
  static void Completed(LoopbackPeer* from);
  bool AllSent() const;
  bool AllTold() const;
  std::vector<Event> BreakAll();  // returns what was never delivered

  // The transport's thread, without the mutex.
  void Run();
  void Handle(Event* event);
  void Deliver(Event* event);
  // What is wrong with the message, or empty.
  std::string Refusal(const Event& event, Landing* landing);

  Transport* const self_;
  const Config config_;
  Receiver* const receiver_;
  LoopbackHub* const hub_;

  std::condition_variable wake_;
  // Guarded by the hub's mutex.
  std::string address_;  // listens there unless empty
  std::deque<Event> events_;
  std::vector<std::unique_ptr<LoopbackPeer>> peers_;
  bool closing_ = false;
  bool broken_ = false;
  int64_t close_deadline_ms_ = kNever;

  std::mutex close_mutex_;
  bool closed_ = false;  // guarded by close_mutex_
  Thread thread_;
};

LoopbackTransport::LoopbackTransport(Transport* self, const Config& config,
                                     Receiver* receiver, LoopbackHub* hub)
    : self_(self), config_(config), receiver_(receiver), hub_(hub) {
  {
    std::lock_guard<std::mutex> lock(hub_->mutex_);
    hub_->transports_.push_back(this);
  }
  thread_ = Thread("bps-loopback", [this] { Run(); });
}

LoopbackTransport::~LoopbackTransport() { Close(0); }

// ---- Any thread

Status LoopbackTransport::Listen(const std::string& address) {
  std::lock_guard<std::mutex> lock(hub_->mutex_);
  if (closing_) {
    return Cancelled("cannot listen on " + address +
                     ": the transport is closed");
  }
  for (const LoopbackTransport* other : hub_->transports_) {
    if (other->address_ == address) {
      return FailedPrecondition("cannot listen on " + address +
                                ": Address already in use");
    }
  }
  address_ = address;
  for (LoopbackTransport* other : hub_->transports_) {
    for (const auto& peer : other->peers_) {
      if (peer->waiting && peer->address == address) {
        other->Connect(peer.get(), this);
      }
    }
  }
  return OkStatus();
}

Peer* LoopbackTransport::Dial(const ProcessName& name,
                              const std::string& address) {
  std::lock_guard<std::mutex> lock(hub_->mutex_);
  LoopbackPeer* peer = NewPeer(name, address);
  if (closing_) {
    peer->waiting = false;
    peer->over = peer->told = true;
    peer->why = Cancelled("the transport is closed");
    return peer;
  }
  for (LoopbackTransport* other : hub_->transports_) {
    if (other->address_ != address) continue;
    Connect(peer, other);
    break;
  }
  return peer;
}

void LoopbackTransport::Send(Peer* peer, const Header& header,
                             const void* payload, StatusCallback sent) {
  Status why;
  {
    auto* from = static_cast<LoopbackPeer*>(peer);
    std::lock_guard<std::mutex> lock(hub_->mutex_);
    if (from->over) {
      why = from->why;
    } else if (from->partner == nullptr) {
      why = FailedPrecondition(from->label() + " is not connected yet");
    } else if (closing_) {
      why = Cancelled("this process closes its connection to " + from->label());
    } else {
      ++from->outstanding;
      Event event;
      event.peer = from->partner;
      event.from = from;
      event.header = header;
      event.payload = payload;
      event.sent = std::move(sent);
      from->partner->owner->Post(std::move(event));
      return;
    }
  }
  if (sent) sent(std::move(why));
}

void LoopbackTransport::ExpectEnd(Peer* peer) {
  std::lock_guard<std::mutex> lock(hub_->mutex_);
  static_cast<LoopbackPeer*>(peer)->end_expected = true;
}

void LoopbackTransport::Close(int64_t timeout_ms) {
  std::lock_guard<std::mutex> closing(close_mutex_);
  if (closed_) return;
  closed_ = true;
  {
    std::lock_guard<std::mutex> lock(hub_->mutex_);
    closing_ = true;
    address_.clear();
    close_deadline_ms_ = NowMs() + std::max<int64_t>(0, timeout_ms);
  }
  wake_.notify_all();
  thread_.Join();
}

// ---- With the hub's mutex

LoopbackPeer* LoopbackTransport::NewPeer(const ProcessName& name,
                                         const std::string& address) {
  peers_.push_back(std::make_unique<LoopbackPeer>(self_, this, name, address));
  return peers_.back().get();
}

void LoopbackTransport::Post(Event event) {
  events_.push_back(std::move(event));
  wake_.notify_all();
}

std::string LoopbackTransport::ObjectionTo(
    const LoopbackTransport& dialer) const {
  const std::string there = ToString(dialer.config_.self);
  std::string objection =
      Objection(MakeHello(config_, config_.self, Nonce{}),
                MakeHello(dialer.config_, config_.self, Nonce{}));
  if (objection.empty() && config_.job_token != dialer.config_.job_token) {
    objection =
        there + " carries another job's token than " + ToString(config_.self);
  }
  if (!objection.empty()) return objection;
  for (const auto& peer : peers_) {
    if (peer->name() == dialer.config_.self && !peer->over &&
        peer->partner != nullptr) {
      return peer->label() + " is connected already";
    }
  }
  return std::string();
}

void LoopbackTransport::Connect(LoopbackPeer* peer, LoopbackTransport* target) {
  peer->waiting = false;
  Event joined;
  joined.what = Event::What::kJoined;
  joined.peer = peer;
  if (target == this && peer->name() == config_.self) {
    peer->partner = peer;
    Post(std::move(joined));
    return;
  }
  std::string objection = target->ObjectionTo(*this);
  if (objection.empty() && peer->name() != target->config_.self) {
    objection = ToString(config_.self) + " looks for " +
                ToString(peer->name()) + ", but this address is " +
                ToString(target->config_.self) + "'s";
  }
  if (!objection.empty()) {
    peer->over = true;
    peer->why = FailedPrecondition(peer->label() +
                                   " refuses this process: " + objection);
    joined.what = Event::What::kRefused;
    Post(std::move(joined));
    return;
  }
  LoopbackPeer* partner =
      target->NewPeer(config_.self, config_.address(config_.self));
  partner->waiting = false;
  partner->partner = peer;
  peer->partner = partner;
  Event accepted = joined;
  accepted.peer = partner;
  Post(std::move(joined));
  target->Post(std::move(accepted));
}

void LoopbackTransport::EndSide(LoopbackPeer* peer, Code code,
                                const std::string& what) {
  if (peer->over) return;
  peer->over = true;
  peer->waiting = false;
  peer->partner = nullptr;
  peer->why = Status(peer->end_expected ? Code::kCancelled : code, what);
  PostEndIfComplete(peer);
}

void LoopbackTransport::PostEndIfComplete(LoopbackPeer* peer) {
  if (!peer->over || peer->outstanding > 0 || peer->end_posted || peer->told) {
    return;
  }
  peer->end_posted = true;
  Event lost;
  lost.what = Event::What::kLost;
  lost.peer = peer;
  peer->owner->Post(std::move(lost));
}

void LoopbackTransport::Completed(LoopbackPeer* from) {
  --from->outstanding;
  PostEndIfComplete(from);
  // Its Close may wait for this one.
  from->owner->wake_.notify_all();
}

bool LoopbackTransport::AllSent() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const auto& peer) { return peer->outstanding == 0; });
}

bool LoopbackTransport::AllTold() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const auto& peer) { return peer->told; });
}

std::vector<Event> LoopbackTransport::BreakAll() {
  broken_ = true;
  std::vector<Event> undelivered;
  for (const auto& peer : peers_) {
    LoopbackPeer* partner = peer->partner;
    if (partner != nullptr) {
      std::deque<Event> others;
      for (Event& event : partner->owner->events_) {
        if (event.from == peer.get()) {
          undelivered.push_back(std::move(event));
        } else {
          others.push_back(std::move(event));
        }
      }
      partner->owner->events_ = std::move(others);
    }
    EndSide(peer.get(), Code::kCancelled,
            "this process closed its connection to " + peer->label());
    if (partner != nullptr && partner != peer.get()) {
      EndSide(partner, Code::kUnavailable,
              partner->label() + " closed the connection");
    }
  }
  return undelivered;
}

// ---- The transport's thread

void LoopbackTransport::Run() {
  std::unique_lock<std::mutex> lock(hub_->mutex_);
  for (;;) {
    while (!events_.empty()) {
      Event event = std::move(events_.front());
      events_.pop_front();
      lock.unlock();
      Handle(&event);
      lock.lock();
    }
    if (closing_ && !broken_ && (AllSent() || NowMs() >= close_deadline_ms_)) {
      std::vector<Event> undelivered = BreakAll();
      for (Event& event : undelivered) {
        const Status why = event.from->why;
        lock.unlock();
        if (event.sent) event.sent(why);
        lock.lock();
        Completed(event.from);
      }
      continue;
    }
    if (broken_ && events_.empty() && AllTold()) break;
    if (closing_ && !broken_) {
      wake_.wait_until(lock,
                       std::chrono::steady_clock::time_point(
                           std::chrono::milliseconds(close_deadline_ms_)));
    } else {
      wake_.wait(lock);
    }
  }
  auto& all = hub_->transports_;
  all.erase(std::remove(all.begin(), all.end(), this), all.end());
}

void LoopbackTransport::Handle(Event* event) {
  LoopbackPeer* peer = event->peer;
  switch (event->what) {
    case Event::What::kJoined:
      receiver_->Joined(peer);
      return;
    case Event::What::kMessage:
      Deliver(event);
      return;
    case Event::What::kRefused:
      receiver_->Refused(peer, peer->why);
      break;
    case Event::What::kLost:
      receiver_->Lost(peer, peer->why);
      break;
  }
  std::lock_guard<std::mutex> lock(hub_->mutex_);
  peer->told = true;
}

std::string LoopbackTransport::Refusal(const Event& event, Landing* landing) {
  const uint64_t size = event.header.payload_bytes;
  if (size > config_.max_message_bytes) {
    return "broke the protocol: it announced a " + Describe(event.header) +
           " of " + std::to_string(size) + " bytes, more than " +
           std::to_string(config_.max_message_bytes);
  }
  *landing = receiver_->Land(event.peer, event.header);
  if (landing->accept) return std::string();
  return "broke the protocol: its " + Describe(event.header) + " of " +
         std::to_string(size) + " bytes was not expected";
}

void LoopbackTransport::Deliver(Event* event) {
  LoopbackPeer* peer = event->peer;
  LoopbackPeer* from = event->from;
  Status status;
  {
    std::lock_guard<std::mutex> lock(hub_->mutex_);
    if (from->over) status = from->why;
  }
  Landing landing;
  if (status.ok()) {
    const std::string refusal = Refusal(*event, &landing);
    if (!refusal.empty()) {
      std::lock_guard<std::mutex> lock(hub_->mutex_);
      EndSide(peer, Code::kUnavailable, peer->label() + " " + refusal);
      EndSide(from, Code::kUnavailable,
              from->label() + " closed the connection");
      status = from->why;
    }
  }
  const uint64_t bytes = event->header.payload_bytes;
  if (status.ok() && landing.data != nullptr && bytes > 0) {
    std::memcpy(landing.data, event->payload, bytes);
  }
  if (event->sent) event->sent(status);
  {
    std::lock_guard<std::mutex> lock(hub_->mutex_);
    Completed(from);
  }
  if (status.ok()) receiver_->Arrived(peer, event->header, landing);
}

std::unique_ptr<Transport> MakeLoopbackTransport(const Config& config,
                                                 Receiver* receiver,
                                                 LoopbackHub* hub) {
  return std::make_unique<ForkSafe<LoopbackTransport>>(config, receiver, hub);
}

}  // namespace byteps

#include "csrc/transport/tcp/greeter.h"

#include <sys/epoll.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/transport/describe.h"
#include "csrc/transport/tcp/tcp_peer.h"

namespace byteps {
namespace {

constexpr int64_t kFirstBackoffMs = 50;
constexpr int64_t kLastBackoffMs = 500;
// A host that drops what it does not like never answers a connect.
constexpr int64_t kConnectMs = 5000;
constexpr int64_t kGreetingMs = 5000;
// How long the end that was refused may take to read why.
constexpr int64_t kLingerMs = 1000;
constexpr size_t kMaxGreetingBytes = 1000;
constexpr size_t kMaxStrangers = 128;
// While there are no descriptors left, accept would fail again at once.
constexpr int64_t kAcceptPauseMs = 500;
constexpr int kAcceptsPerTurn = 64;

Result<Nonce> MakeNonce() {
  Nonce nonce;
  size_t have = 0;
  while (have < nonce.size()) {
    const ssize_t got = getrandom(nonce.data() + have, nonce.size() - have, 0);
    if (got < 0 && errno != EINTR) {
      return Internal("no random numbers: " + ErrorText(errno));
    }
    if (got > 0) have += static_cast<size_t>(got);
  }
  return nonce;
}

// A few dozen bytes into a fresh socket: they fit, or the connection is gone.
bool SendAll(const Socket& socket, const std::vector<uint8_t>& bytes) {
  return bytes.empty() ||
         send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
             static_cast<ssize_t>(bytes.size());
}

// Many systems give a host's own name a loopback address in /etc/hosts, on
// which no other host would reach it.
bool IsOwnNameOnly(const HostPort& where,
                   const std::vector<Endpoint>& endpoints) {
  return where.host != "localhost" && ParseNumeric(where).empty() &&
         std::all_of(endpoints.begin(), endpoints.end(), IsLoopback);
}

}  // namespace

struct Greeter::Listener final : Source {
  explicit Listener(Greeter* greeter) : greeter(greeter) {}
  void Ready(uint32_t) override { greeter->AcceptFrom(*this); }

  Greeter* const greeter;
  Socket socket;
};

// A peer that we try to reach.
struct Greeter::Dialing {
  TcpPeer* peer = nullptr;
  HostPort where;
  std::vector<Endpoint> endpoints;  // of this attempt
  size_t next_endpoint = 0;
  int64_t retry_ms = kNever;  // when the next attempt begins
  int64_t backoff_ms = kFirstBackoffMs;
  Opening* opening = nullptr;
};

// A connection whose other end has not proved who it is yet.
struct Greeter::Opening final : Source {
  explicit Opening(Greeter* greeter) : greeter(greeter) {}
  void Ready(uint32_t) override { greeter->OpeningReady(this); }

  Greeter* const greeter;
  Dialing* dialing = nullptr;  // null if it was accepted
  Socket socket;
  Endpoint from;
  std::unique_ptr<Handshake> handshake;
  bool connecting = false;
  bool refused = false;  // only waits for the other end to read why
  int64_t deadline_ms = kNever;
  uint8_t buffer[kMaxGreetingBytes];
  size_t size = 0;
  size_t total = 0;
};

Greeter::Greeter(const Config& config, Poller* poller, GreeterOwner* owner)
    : config_(config), poller_(poller), owner_(owner) {}

Greeter::~Greeter() = default;

Status Greeter::Listen(const std::string& address) {
  const std::string cannot = "cannot listen on " + address + ": ";
  Result<HostPort> where = SplitAddress(address);
  if (!where.ok()) return where.status();
  std::vector<std::unique_ptr<Listener>> listeners;
  auto bind = [&](const Endpoint& endpoint) {
    auto listener = std::make_unique<Listener>(this);
    const int error = ListenAt(endpoint, &listener->socket);
    if (error == 0) listeners.push_back(std::move(listener));
    return error;
  };
  Result<std::vector<Endpoint>> endpoints = Resolve(where.value());
  std::string elsewhere;
  if (!endpoints.ok()) {
    elsewhere = endpoints.status().message();
  } else if (IsOwnNameOnly(where.value(), endpoints.value())) {
    elsewhere = "other hosts know this one by another address";
  } else {
    elsewhere = "is not an address of this host";
    for (const Endpoint& endpoint : endpoints.value()) {
      const int error = bind(endpoint);
      if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) continue;
      if (error != 0) return FailedPrecondition(cannot + strerror(error));
    }
  }
  if (listeners.empty()) {
    // Behind address translation, as with published container ports, the
    // address others dial is none of this host's.
    int error = 0;
    for (const char* any : {"::", "0.0.0.0"}) {
      error = bind(ParseNumeric({any, where.value().port}).front());
      if (error != EAFNOSUPPORT && error != EADDRNOTAVAIL) break;
    }
    if (error != 0) return FailedPrecondition(cannot + strerror(error));
    LogInfo(address + ": " + elsewhere + "; listening on all addresses, port " +
            std::to_string(where.value().port));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return Cancelled(cannot + "the transport is closed");
  for (auto& listener : listeners) {
    const int error = poller_->Add(listener->socket, EPOLLIN, listener.get());
    if (error != 0) return ResourceExhausted(cannot + strerror(error));
    listeners_.push_back(std::move(listener));
  }
  return OkStatus();
}

void Greeter::Dial(TcpPeer* peer, const std::string& address) {
  dialing_.push_back(std::make_unique<Dialing>());
  Dialing* dialing = dialing_.back().get();
  dialing->peer = peer;
  Result<HostPort> where = SplitAddress(address);
  if (!where.ok()) return RefusedFor(dialing, where.status().message());
  dialing->where = where.value();
  StartAttempt(dialing);
}

void Greeter::Tidy() { dropped_.clear(); }

void Greeter::CallBy(int64_t due_ms) { due_ms_ = std::min(due_ms_, due_ms); }

void Greeter::RunTimers(int64_t now) {
  if (now >= accept_again_ms_) {
    accept_again_ms_ = kNever;
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& listener : listeners_) {
      (void)poller_->Add(listener->socket, EPOLLIN, listener.get());
    }
  }

  std::vector<Dialing*> retries;
  for (const auto& dialing : dialing_) {
    if (dialing->retry_ms <= now) retries.push_back(dialing.get());
  }
  for (Dialing* dialing : retries) StartAttempt(dialing);

  std::vector<Opening*> late;
  for (const auto& opening : openings_) {
    if (opening->deadline_ms <= now) late.push_back(opening.get());
  }
  for (Opening* opening : late) {
    if (opening->dialing != nullptr) {
      AttemptFailed(opening->dialing, "no answer");
    } else if (opening->refused) {
      Drop(opening);
    } else {
      DropStranger(opening,
                   "it did not say who it is within " + Seconds(kGreetingMs));
    }
  }

  due_ms_ = accept_again_ms_;
  for (const auto& dialing : dialing_) CallBy(dialing->retry_ms);
  for (const auto& opening : openings_) CallBy(opening->deadline_ms);
}

std::vector<TcpPeer*> Greeter::Close() {
  accept_again_ms_ = kNever;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    for (const auto& listener : listeners_) {
      poller_->Remove(listener->socket);
      listener->socket.Close();
    }
  }
  while (!openings_.empty()) Drop(openings_.back().get());
  std::vector<TcpPeer*> dialed;
  for (const auto& dialing : dialing_) dialed.push_back(dialing->peer);
  dialing_.clear();
  return dialed;
}

// ---- Accepting

void Greeter::AcceptFrom(const Listener& listener) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    auto opening = std::make_unique<Opening>(this);
    const int error =
        byteps::AcceptFrom(listener.socket, &opening->socket, &opening->from);
    if (error == EAGAIN || error == EWOULDBLOCK) return;
    if (error == EMFILE || error == ENFILE || error == ENOBUFS ||
        error == ENOMEM) {
      return PauseAccepting(error);
    }
    // Others concern the one connection only, which is gone.
    if (error != 0) continue;
    MakeRoomForStranger();
    Result<Nonce> nonce = MakeNonce();
    if (!nonce.ok()) {
      LogError(nonce.status().message());
      continue;
    }
    opening->handshake = std::make_unique<Handshake>(
        Handshake::Acceptor(config_, nonce.value()));
    PrepareStream(opening->socket, config_.failure_timeout_ms);
    opening->deadline_ms = NowMs() + kGreetingMs;
    CallBy(opening->deadline_ms);
    if (poller_->Add(opening->socket, EPOLLIN, opening.get()) != 0) continue;
    openings_.push_back(std::move(opening));
  }
}

void Greeter::PauseAccepting(int error) {
  Warn("cannot accept connections for now: " + ErrorText(error));
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& listener : listeners_) poller_->Remove(listener->socket);
  accept_again_ms_ = NowMs() + kAcceptPauseMs;
  CallBy(accept_again_ms_);
}

void Greeter::MakeRoomForStranger() {
  size_t strangers = 0;
  Opening* oldest = nullptr;
  for (const auto& opening : openings_) {  // oldest first
    if (opening->dialing != nullptr) continue;
    ++strangers;
    // One that has said hello is likely genuine and goes last.
    if (oldest == nullptr || (oldest->handshake->heard_hello() &&
                              !opening->handshake->heard_hello())) {
      oldest = opening.get();
    }
  }
  if (strangers >= kMaxStrangers) {
    DropStranger(oldest, "more than " + std::to_string(kMaxStrangers) +
                             " others wait to say who they are");
  }
}

// ---- Dialing

void Greeter::StartAttempt(Dialing* dialing) {
  dialing->retry_ms = kNever;
  dialing->next_endpoint = 0;
  dialing->endpoints = ParseNumeric(dialing->where);
  if (!dialing->endpoints.empty()) return TryNextEndpoint(dialing);
  TcpPeer* peer = dialing->peer;
  resolver_.Resolve(
      dialing->where, [this, peer](Result<std::vector<Endpoint>> found) {
        owner_->Post([this, peer, found = std::move(found)] {
          auto it = std::find_if(
              dialing_.begin(), dialing_.end(),
              [peer](const auto& other) { return other->peer == peer; });
          if (it == dialing_.end()) return;  // closed meanwhile
          if (!found.ok()) {
            return AttemptFailed(it->get(), found.status().message());
          }
          (*it)->endpoints = found.value();
          TryNextEndpoint(it->get());
        });
      });
}

void Greeter::TryNextEndpoint(Dialing* dialing) {
  while (dialing->next_endpoint < dialing->endpoints.size()) {
    auto opening = std::make_unique<Opening>(this);
    opening->from = dialing->endpoints[dialing->next_endpoint++];
    int error = StartConnect(opening->from, &opening->socket);
    if (error == 0) {
      error = poller_->Add(opening->socket, EPOLLOUT, opening.get());
    }
    if (error != 0) {
      dialing->peer->SetProgress(ErrorText(error));
      continue;
    }
    opening->dialing = dialing;
    opening->connecting = true;
    opening->deadline_ms = NowMs() + kConnectMs;
    CallBy(opening->deadline_ms);
    dialing->opening = opening.get();
    openings_.push_back(std::move(opening));
    return;
  }
  dialing->retry_ms = NowMs() + dialing->backoff_ms;
  dialing->backoff_ms = std::min(2 * dialing->backoff_ms, kLastBackoffMs);
  CallBy(dialing->retry_ms);
}

void Greeter::AttemptFailed(Dialing* dialing, const std::string& why) {
  dialing->peer->SetProgress(why);
  if (dialing->opening != nullptr) {
    Drop(std::exchange(dialing->opening, nullptr));
  }
  TryNextEndpoint(dialing);
}

void Greeter::RefusedFor(Dialing* dialing, const std::string& why) {
  TcpPeer* peer = dialing->peer;
  if (dialing->opening != nullptr) Drop(dialing->opening);
  Forget(dialing);
  owner_->Refused(peer, why);
}

void Greeter::Forget(Dialing* dialing) {
  dialing_.erase(std::find_if(
      dialing_.begin(), dialing_.end(),
      [dialing](const auto& other) { return other.get() == dialing; }));
}

// ---- Greeting

void Greeter::OpeningReady(Opening* opening) {
  if (!opening->socket.valid()) return;  // dropped in this very turn
  if (opening->connecting) {
    BeginGreeting(opening);
  } else {
    ReceiveGreeting(opening);
  }
}

void Greeter::BeginGreeting(Opening* opening) {
  Dialing* dialing = opening->dialing;
  const int error = ConnectError(opening->socket);
  if (error != 0) return AttemptFailed(dialing, ErrorText(error));
  if (IsConnectedToItself(opening->socket)) {
    return AttemptFailed(dialing, ErrorText(ECONNREFUSED));
  }
  Result<Nonce> nonce = MakeNonce();
  if (!nonce.ok()) return AttemptFailed(dialing, nonce.status().message());
  PrepareStream(opening->socket, config_.failure_timeout_ms);
  opening->connecting = false;
  // The other process may be long in coming to its listener; if its host goes,
  // keep-alive tells.
  opening->deadline_ms = kNever;
  opening->handshake = std::make_unique<Handshake>(
      Handshake::Dialer(config_, dialing->peer->name(), nonce.value()));
  poller_->Modify(opening->socket, EPOLLIN, opening);
  if (!SendAll(opening->socket, opening->handshake->TakeOutput())) {
    return AttemptFailed(dialing, "the connection broke at once");
  }
  dialing->peer->SetProgress("connected, but it does not answer yet");
}

void Greeter::ReceiveGreeting(Opening* opening) {
  const size_t room = kMaxGreetingBytes - opening->size;
  const ssize_t got =
      recv(opening->socket.fd(), opening->buffer + opening->size, room, 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    return;
  }
  if (got <= 0) {
    if (opening->dialing != nullptr) {
      return AttemptFailed(opening->dialing,
                           "it closed the connection during the greeting");
    }
    if (opening->refused || opening->total == 0 ||
        opening->handshake->heard_hello()) {
      // A probe of the port, or a process that gave up waiting for us.
      return Drop(opening);
    }
    return DropStranger(opening, "it is not a tf_byteps process");
  }
  opening->total += static_cast<size_t>(got);
  if (opening->refused) {
    if (opening->total > kMaxGreetingBytes) Drop(opening);
    return;
  }
  opening->size += static_cast<size_t>(got);
  const size_t used =
      opening->handshake->Receive(opening->buffer, opening->size);
  std::memmove(opening->buffer, opening->buffer + used, opening->size - used);
  opening->size -= used;
  DecideOn(opening);
}

void Greeter::DecideOn(Opening* opening) {
  Handshake* handshake = opening->handshake.get();
  Dialing* dialing = opening->dialing;
  if (handshake->state() == Handshake::State::kProved) {
    const ProcessName name = handshake->peer();
    switch (owner_->MayConnect(name)) {
      case GreeterOwner::Admission::kWelcome:
        handshake->Admit();
        break;
      case GreeterOwner::Admission::kConnectedAlready:
        handshake->Refuse(Label(name, config_.address(name)) +
                          " is connected already");
        break;
      case GreeterOwner::Admission::kLater:
        return Drop(opening);  // it tries again
    }
  }
  if (!SendAll(opening->socket, handshake->TakeOutput())) {
    if (dialing != nullptr) {
      return AttemptFailed(dialing,
                           "it closed the connection during the greeting");
    }
    return Drop(opening);
  }
  switch (handshake->state()) {
    case Handshake::State::kWaiting:
    case Handshake::State::kProved:
      return;
    case Handshake::State::kDone:
      return Establish(opening);
    case Handshake::State::kRefused:
      if (dialing != nullptr) {
        return RefusedFor(dialing,
                          dialing->peer->label() +
                              (handshake->by_us() ? " is not the right one: "
                                                  : " refuses this process: ") +
                              handshake->reason());
      }
      if (handshake->by_us()) return Linger(opening);
      return DropStranger(opening, "it refuses: " + handshake->reason());
    case Handshake::State::kBroken:
      if (dialing != nullptr) {
        return AttemptFailed(dialing,
                             "something that is not tf_byteps answers there");
      }
      return DropStranger(opening, "it " + handshake->reason());
  }
}

void Greeter::Establish(Opening* opening) {
  Dialing* dialing = opening->dialing;
  TcpPeer* dialed = dialing != nullptr ? dialing->peer : nullptr;
  const ProcessName name = opening->handshake->peer();
  const std::vector<uint8_t> rest(opening->buffer,
                                  opening->buffer + opening->size);
  Socket socket = std::move(opening->socket);
  poller_->Remove(socket);
  Drop(opening);
  if (dialing != nullptr) dialing->opening = nullptr;
  const int error = owner_->Connected(dialed, name, std::move(socket), rest);
  if (dialing == nullptr) return;
  if (error != 0) return AttemptFailed(dialing, ErrorText(error));
  Forget(dialing);
}

void Greeter::Linger(Opening* opening) {
  Warn("refused a connection from " + HostOf(opening->from) + ": " +
       opening->handshake->reason());
  // Closed now, with bytes unread, the reason might never arrive.
  shutdown(opening->socket.fd(), SHUT_WR);
  opening->refused = true;
  opening->size = 0;
  opening->deadline_ms = NowMs() + kLingerMs;
  CallBy(opening->deadline_ms);
}

void Greeter::DropStranger(Opening* opening, const std::string& why) {
  Warn("dropped a connection from " + HostOf(opening->from) + ": " + why);
  Drop(opening);
}

void Greeter::Warn(const std::string& sentence) {
  const std::optional<std::string> line =
      stranger_log_.Admit(sentence, NowMs());
  if (line.has_value()) LogWarning(*line);
}

void Greeter::Drop(Opening* opening) {
  if (opening->socket.valid()) {
    poller_->Remove(opening->socket);
    opening->socket.Close();
  }
  auto it = std::find_if(
      openings_.begin(), openings_.end(),
      [opening](const auto& other) { return other.get() == opening; });
  if (it == openings_.end()) return;
  dropped_.push_back(std::move(*it));
  openings_.erase(it);
}

}  // namespace byteps

#include "csrc/transport/tcp/tcp_transport.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/base/queue.h"
#include "csrc/base/thread.h"
#include "csrc/transport/liveness.h"
#include "csrc/transport/tcp/socket.h"
#include "csrc/transport/tcp/tcp_peer.h"
#include "csrc/wire/handshake.h"

namespace byteps {
namespace {

constexpr size_t kReadBufferBytes = 64 << 10;
// What one connection may read before the others get their turn.
constexpr size_t kReadBudgetBytes = 4 << 20;
constexpr int64_t kHandshakeMs = 5000;
constexpr size_t kMaxStrangers = 128;
constexpr int64_t kFirstRetryMs = 50;
constexpr int64_t kLastRetryMs = 500;
// Lines about strangers in one minute; a scan must not fill the disk.
constexpr int kStrangerLines = 50;
constexpr int64_t kFarMs = 3600 * 1000;

std::string Nonce() {
  std::string nonce(16, '\0');
  size_t got = 0;
  while (got < nonce.size()) {
    const ssize_t n = getrandom(&nonce[got], nonce.size() - got, 0);
    if (n > 0) got += static_cast<size_t>(n);
  }
  return nonce;
}

std::string Seconds(int64_t ms) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s",
                static_cast<double>(ms) / 1000);
  return text;
}

const char* Name(Kind kind) {
  switch (kind) {
    case Kind::kDeclare:
      return "declaration";
    case Kind::kPush:
      return "push";
    case Kind::kCancel:
      return "cancel";
    case Kind::kResult:
      return "result";
    case Kind::kRoundError:
      return "error";
    case Kind::kStall:
      return "stall warning";
    case Kind::kReady:
      return "ready";
    case Kind::kStart:
      return "start";
    case Kind::kGoodbye:
      return "goodbye";
    case Kind::kLost:
      return "report of a loss";
    case Kind::kPing:
      return "ping";
  }
  return "message";
}

class TcpTransport : public Transport {
 public:
  TcpTransport(const Config& config, Receiver* receiver);
  ~TcpTransport() override;

  Status Listen(const std::string& address) override;
  Peer* Dial(const ProcessName& name, const std::string& address) override;
  void Send(Peer* peer, const Header& header, const void* payload,
            StatusCallback sent) override;
  void ExpectEnd(Peer* peer) override;
  void Close(int64_t timeout_ms) override;

 private:
  // One connection. Touched by the epoll thread only.
  struct Socket {
    int fd = -1;
    TcpPeer* peer = nullptr;  // null: not known yet who it is
    bool dialed = false;
    bool connecting = false;
    bool open = false;
    bool dead = false;
    bool ended_sending = false;
    std::string remote;
    std::unique_ptr<Handshake> handshake;  // until it is open
    int64_t deadline_ms = 0;               // until it is open
    bool heard_anything = false;

    Liveness liveness;
    Kind last_kind = Kind::kPing;
    int64_t last_kind_ms = 0;

    // The message that is being read.
    bool in_payload = false;
    Header header;
    Landing landing;
    uint64_t received = 0;  // of the payload
    std::vector<uint8_t> buffer;
    size_t begin = 0, end = 0;  // unread part of buffer

    uint64_t missing() const { return header.payload_bytes - received; }
  };
  struct Dialing {
    TcpPeer* peer;
    int64_t retry_ms = kFirstRetryMs;
    int64_t next_ms = 0;
    bool busy = false;  // resolving, connecting, or connected
    bool over = false;
  };
  struct Resolved {
    TcpPeer* peer;
    Result<SocketAddress> address;
  };

  void Run();
  void Wake();
  void OnWake();
  void OnListener();
  void OnSocket(Socket* socket, uint32_t events);
  void OnHandshakeData(Socket* socket);
  void OnData(Socket* socket);
  // False if the socket is dead now.
  bool Parse(Socket* socket);
  void OnTimers(int64_t now);
  void EndSendingWhereDone();

  void StartAttempt(Dialing* dialing);
  void Connect(TcpPeer* peer, const Result<SocketAddress>& address);
  Dialing* FindDialing(const TcpPeer* peer);
  void RetryLater(TcpPeer* peer, const std::string& why);

  Socket* Add(int fd, uint32_t events);
  void BecomeOpen(Socket* socket);
  void HandshakeFailed(Socket* socket);
  // Ends the connection; `why` is what a lost peer's user reads.
  void Drop(Socket* socket, const Status& why);
  void DropLost(Socket* socket, const std::string& what);
  void LogStranger(const Socket& socket, const std::string& why);
  void Resolve();

  const Config config_;
  Receiver* const receiver_;
  const pid_t pid_;
  const int epoll_fd_;
  const int wake_fd_;

  std::mutex mutex_;
  std::vector<std::unique_ptr<TcpPeer>> peers_;  // guarded by mutex_
  std::vector<TcpPeer*> new_dials_;              // guarded by mutex_
  std::vector<Resolved> resolved_;               // guarded by mutex_
  int new_listener_ = -1;                        // guarded by mutex_
  bool closing_ = false;                         // guarded by mutex_
  int64_t close_deadline_ms_ = 0;                // guarded by mutex_
  bool resolver_started_ = false;                // guarded by mutex_

  // The epoll thread's own.
  int listener_ = -1;
  bool ending_ = false;
  int64_t end_ms_ = 0;
  std::vector<std::unique_ptr<Socket>> sockets_;
  std::vector<Dialing> dialings_;
  std::map<ProcessName, Socket*> open_;
  int stranger_lines_ = 0;
  int64_t stranger_minute_ms_ = 0;
  int64_t next_timer_ms_ = 0;

  Queue<TcpPeer*> to_resolve_;
  std::mutex join_mutex_;
  Thread resolver_;
  Thread thread_;
};

TcpTransport::TcpTransport(const Config& config, Receiver* receiver)
    : config_(config),
      receiver_(receiver),
      pid_(getpid()),
      epoll_fd_(epoll_create1(EPOLL_CLOEXEC)),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.ptr = this;
  epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wake_fd_, &event);
  thread_ = Thread("bps-tcp", [this] { Run(); });
}

TcpTransport::~TcpTransport() {
  Close(0);
  close(wake_fd_);
  close(epoll_fd_);
}

Status TcpTransport::Listen(const std::string& address) {
  Result<int> fd = ListenOn(address);
  if (!fd.ok()) return fd.status();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    new_listener_ = fd.value();
  }
  Wake();
  return OkStatus();
}

Peer* TcpTransport::Dial(const ProcessName& name, const std::string& address) {
  TcpPeer* peer = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    peers_.push_back(std::make_unique<TcpPeer>(this, name, address));
    peer = peers_.back().get();
    new_dials_.push_back(peer);
  }
  Wake();
  return peer;
}

void TcpTransport::Send(Peer* peer, const Header& header, const void* payload,
                        StatusCallback sent) {
  if (getpid() != pid_) {
    sent(FailedPrecondition("a forked child cannot send"));
    return;
  }
  static_cast<TcpPeer*>(peer)->Send(header, payload, std::move(sent));
}

void TcpTransport::ExpectEnd(Peer* peer) {
  static_cast<TcpPeer*>(peer)->expect_end.store(true);
}

void TcpTransport::Close(int64_t timeout_ms) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!closing_) {
      closing_ = true;
      close_deadline_ms_ = NowMs() + timeout_ms;
    }
  }
  Wake();
  to_resolve_.Close();
  std::lock_guard<std::mutex> lock(join_mutex_);
  thread_.Join();
  resolver_.Join();
}

void TcpTransport::Wake() {
  const uint64_t one = 1;
  ssize_t written = write(wake_fd_, &one, sizeof(one));
  (void)written;  // full means that the thread will wake anyway
}

void TcpTransport::Run() {
  std::vector<epoll_event> events(64);
  while (true) {
    const int64_t now = NowMs();
    int64_t wait_ms = std::max<int64_t>(next_timer_ms_ - now, 0);
    const int count = epoll_wait(epoll_fd_, events.data(),
                                 static_cast<int>(events.size()),
                                 static_cast<int>(std::min(wait_ms, kFarMs)));
    // Events before timers: after a stop of this process, what has arrived in
    // the meantime proves that the peers live.
    for (int i = 0; i < count; ++i) {
      void* who = events[i].data.ptr;
      if (who == this) {
        OnWake();
      } else if (who == &listener_) {
        OnListener();
      } else {
        auto* socket = static_cast<Socket*>(who);
        if (!socket->dead) OnSocket(socket, events[i].events);
      }
    }
    if (NowMs() >= next_timer_ms_) OnTimers(NowMs());
    if (ending_) EndSendingWhereDone();
    // Only here: events of one batch may name a socket that another ended.
    sockets_.erase(std::remove_if(sockets_.begin(), sockets_.end(),
                                  [](const std::unique_ptr<Socket>& s) {
                                    return s->dead;
                                  }),
                   sockets_.end());
    if (ending_ && (open_.empty() || NowMs() >= end_ms_)) break;
  }
  for (auto& socket : sockets_) {
    if (!socket->dead) Drop(socket.get(), Cancelled("the transport was closed"));
  }
  sockets_.clear();
  if (listener_ >= 0) close(listener_);
}

void TcpTransport::OnWake() {
  uint64_t count = 0;
  ssize_t got = read(wake_fd_, &count, sizeof(count));
  (void)got;
  std::vector<TcpPeer*> dials;
  std::vector<Resolved> resolved;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    dials.swap(new_dials_);
    resolved.swap(resolved_);
    if (new_listener_ >= 0) {
      listener_ = std::exchange(new_listener_, -1);
      epoll_event event = {};
      event.events = EPOLLIN;
      event.data.ptr = &listener_;
      epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, listener_, &event);
    }
    if (closing_ && !ending_) {
      ending_ = true;
      end_ms_ = close_deadline_ms_;
      next_timer_ms_ = std::min(next_timer_ms_, end_ms_);
    }
  }
  for (TcpPeer* peer : dials) {
    dialings_.push_back(Dialing{peer});
    StartAttempt(&dialings_.back());
  }
  for (const Resolved& r : resolved) Connect(r.peer, r.address);
  if (ending_) {
    for (auto& socket : sockets_) {
      if (!socket->open && !socket->dead) {
        Drop(socket.get(), Cancelled("the transport was closed"));
      }
    }
  }
}

void TcpTransport::StartAttempt(Dialing* dialing) {
  dialing->busy = true;
  Result<SocketAddress> address =
      byteps::Resolve(dialing->peer->address(), true);
  if (address.ok()) return Connect(dialing->peer, address);
  {
    // A name: asking for it may take long.
    std::lock_guard<std::mutex> lock(mutex_);
    if (!resolver_started_ && !closing_) {
      resolver_started_ = true;
      resolver_ = Thread("bps-resolve", [this] { Resolve(); });
    }
  }
  to_resolve_.Push(dialing->peer);
}

void TcpTransport::Resolve() {
  while (!to_resolve_.finished()) {
    auto peer = to_resolve_.PopUntil(NowMs() + kFarMs);
    if (!peer) continue;
    Result<SocketAddress> address = byteps::Resolve((*peer)->address(), false);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (closing_) return;
      resolved_.push_back({*peer, std::move(address)});
    }
    Wake();
  }
}

TcpTransport::Dialing* TcpTransport::FindDialing(const TcpPeer* peer) {
  for (Dialing& dialing : dialings_) {
    if (dialing.peer == peer) return &dialing;
  }
  return nullptr;
}

void TcpTransport::RetryLater(TcpPeer* peer, const std::string& why) {
  Dialing* dialing = FindDialing(peer);
  if (dialing == nullptr || dialing->over) return;
  peer->set_progress(why);
  dialing->busy = false;
  dialing->next_ms = NowMs() + dialing->retry_ms;
  dialing->retry_ms = std::min(dialing->retry_ms * 2, kLastRetryMs);
  next_timer_ms_ = std::min(next_timer_ms_, dialing->next_ms);
}

void TcpTransport::Connect(TcpPeer* peer,
                           const Result<SocketAddress>& address) {
  if (ending_) return;
  if (!address.ok()) return RetryLater(peer, address.status().message());
  Result<int> fd = StartConnect(address.value(), config_.failure_timeout_ms);
  if (!fd.ok()) return RetryLater(peer, fd.status().message());
  Socket* socket = Add(fd.value(), EPOLLIN | EPOLLOUT);
  socket->peer = peer;
  socket->dialed = true;
  socket->connecting = true;
  socket->remote = address.value().ToText();
  socket->deadline_ms = NowMs() + config_.failure_timeout_ms;
  next_timer_ms_ = std::min(next_timer_ms_, socket->deadline_ms);
  peer->set_progress("no answer");
}

TcpTransport::Socket* TcpTransport::Add(int fd, uint32_t events) {
  sockets_.push_back(std::make_unique<Socket>());
  Socket* socket = sockets_.back().get();
  socket->fd = fd;
  epoll_event event = {};
  event.events = events;
  event.data.ptr = socket;
  epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event);
  return socket;
}

void TcpTransport::OnListener() {
  while (true) {
    SocketAddress from;
    from.length = sizeof(from.storage);
    const int fd =
        accept4(listener_, reinterpret_cast<sockaddr*>(&from.storage),
                &from.length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    if (ending_) {
      close(fd);
      continue;
    }
    // Whoever holds connections and says nothing makes room for the next.
    size_t strangers = 0;
    Socket* oldest = nullptr;
    for (auto& socket : sockets_) {
      if (socket->dead || socket->open || socket->dialed) continue;
      ++strangers;
      if (oldest == nullptr) oldest = socket.get();
    }
    if (strangers >= kMaxStrangers) {
      LogStranger(*oldest, "too many connections wait for a greeting");
      Drop(oldest, Cancelled("too many strangers"));
    }
    Configure(fd, config_.failure_timeout_ms);
    Socket* socket = Add(fd, EPOLLIN);
    socket->remote = from.ToText();
    socket->deadline_ms = NowMs() + kHandshakeMs;
    socket->handshake = std::make_unique<Handshake>(Handshake::Acceptor(
        config_, Nonce(), [this](const ProcessName& name) {
          if (open_.count(name) == 0) return OkStatus();
          return FailedPrecondition(ToString(name) +
                                    " is connected already: another process "
                                    "has the same task in TF_CONFIG");
        }));
    next_timer_ms_ = std::min(next_timer_ms_, socket->deadline_ms);
  }
}

void TcpTransport::OnSocket(Socket* socket, uint32_t events) {
  if (socket->connecting) {
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(socket->fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return Drop(socket, Unavailable(ErrorText(error)));
    if ((events & EPOLLOUT) == 0) return;
    socket->connecting = false;
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.ptr = socket;
    epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, socket->fd, &event);
    socket->handshake = std::make_unique<Handshake>(
        Handshake::Dialer(config_, socket->peer->name(), Nonce()));
    socket->peer->set_progress("connected, but it does not answer yet");
    return OnHandshakeData(socket);
  }
  if (!socket->open) return OnHandshakeData(socket);
  if ((events & EPOLLOUT) != 0) socket->peer->Flush();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) OnData(socket);
}

void TcpTransport::OnHandshakeData(Socket* socket) {
  uint8_t data[2048];
  Handshake& handshake = *socket->handshake;
  const ssize_t got = recv(socket->fd, data, sizeof(data), MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
    if (!socket->dialed && socket->heard_anything && !handshake.understood()) {
      LogStranger(*socket, "it does not speak tf_byteps' protocol");
    }
    return Drop(socket, Unavailable(got == 0 ? "it closed the connection"
                                             : ErrorText(errno)));
  }
  size_t used = 0;
  if (got > 0) {
    socket->heard_anything = true;
    handshake.Receive(data, static_cast<size_t>(got), &used);
  }
  const std::string output = handshake.TakeOutput();
  if (!output.empty()) {
    // A few hundred bytes into an empty socket buffer.
    const ssize_t sent = send(socket->fd, output.data(), output.size(),
                              MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent != static_cast<ssize_t>(output.size()) && !handshake.failed()) {
      return Drop(socket, Unavailable("the greeting could not be sent"));
    }
  }
  if (handshake.failed()) return HandshakeFailed(socket);
  if (!handshake.done()) return;
  socket->buffer.resize(kReadBufferBytes);
  if (got > 0) {
    socket->end = static_cast<size_t>(got) - used;
    std::memcpy(socket->buffer.data(), data + used, socket->end);
  }
  BecomeOpen(socket);
  Parse(socket);
}

void TcpTransport::HandshakeFailed(Socket* socket) {
  const Status why = socket->handshake->failure();
  if (!socket->dialed) {
    LogStranger(*socket, why.message());
    return Drop(socket, why);
  }
  TcpPeer* peer = socket->peer;
  FindDialing(peer)->over = true;
  Drop(socket, why);
  receiver_->Refused(
      peer, FailedPrecondition(
                "cannot join " + peer->label() + ": " +
                (socket->handshake->understood() ? "" : "what answers there: ") +
                why.message()));
}

void TcpTransport::BecomeOpen(Socket* socket) {
  if (socket->dialed) {
    FindDialing(socket->peer)->over = true;
  } else {
    const ProcessName name = socket->handshake->peer();
    auto peer = std::make_unique<TcpPeer>(this, name, config_.address(name));
    socket->peer = peer.get();
    std::lock_guard<std::mutex> lock(mutex_);
    peers_.push_back(std::move(peer));
  }
  socket->handshake.reset();
  socket->open = true;
  const int64_t now = NowMs();
  socket->liveness = Liveness(config_.failure_timeout_ms, now);
  socket->last_kind_ms = now;
  open_[socket->peer->name()] = socket;
  socket->peer->Open(socket->fd, epoll_fd_, socket);
  next_timer_ms_ =
      std::min(next_timer_ms_, socket->liveness.NextCheckMs());
  receiver_->Joined(socket->peer);
}

void TcpTransport::OnData(Socket* socket) {
  size_t budget = kReadBudgetBytes;
  while (budget > 0) {
    // The rest of the payload goes where it belongs; what follows it, often the
    // next header, comes with the same call.
    iovec pieces[2];
    int count = 0;
    size_t wanted = 0;
    const bool direct = socket->in_payload && socket->landing.data != nullptr &&
                        socket->missing() > 0;
    if (direct) {
      wanted = std::min<uint64_t>(socket->missing(), budget);
      pieces[count++] = {
          static_cast<uint8_t*>(socket->landing.data) + socket->received,
          wanted};
    }
    const bool whole = !direct || wanted == socket->missing();
    if (whole) {
      pieces[count++] = {socket->buffer.data() + socket->end,
                         kReadBufferBytes - socket->end};
    }
    const ssize_t got = readv(socket->fd, pieces, count);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      return DropLost(socket, "its connection broke (" + ErrorText(errno) + ")");
    }
    if (got == 0) {
      return DropLost(socket,
                      "its connection was closed, so its process has ended");
    }
    socket->liveness.Heard(NowMs());
    size_t left = static_cast<size_t>(got);
    budget -= std::min(budget, left);
    if (direct) {
      const size_t landed = std::min(left, wanted);
      socket->received += landed;
      left -= landed;
    }
    socket->end += left;
    if (!Parse(socket)) return;
    // A short read means that there is nothing more.
    const size_t asked = (direct ? wanted : 0) +
                         (whole ? kReadBufferBytes - (socket->end - left) : 0);
    if (static_cast<size_t>(got) < asked && left < kReadBufferBytes / 2) return;
  }
}

bool TcpTransport::Parse(Socket* socket) {
  while (true) {
    if (!socket->in_payload) {
      if (socket->end - socket->begin < Header::kBytes) break;
      Result<Header> header =
          DecodeHeader(socket->buffer.data() + socket->begin);
      socket->begin += Header::kBytes;
      if (!header.ok() ||
          header.value().payload_bytes > config_.max_message_bytes) {
        DropLost(socket, "it broke the protocol: " +
                             (header.ok() ? "a message of " +
                                                std::to_string(
                                                    header.value()
                                                        .payload_bytes) +
                                                " bytes"
                                          : header.status().message()));
        return false;
      }
      socket->header = header.value();
      socket->received = 0;
      socket->last_kind = socket->header.kind;
      socket->last_kind_ms = NowMs();
      if (socket->header.kind == Kind::kPing &&
          socket->header.payload_bytes == 0) {
        continue;
      }
      socket->landing = receiver_->Land(socket->peer, socket->header);
      if (!socket->landing.accept) {
        DropLost(socket, std::string("it broke the protocol: its ") +
                             Name(socket->header.kind) + " of " +
                             std::to_string(socket->header.payload_bytes) +
                             " bytes was refused");
        return false;
      }
      socket->in_payload = true;
    }
    const size_t step = std::min<uint64_t>(socket->missing(),
                                           socket->end - socket->begin);
    if (step > 0) {
      if (socket->landing.data != nullptr) {
        std::memcpy(
            static_cast<uint8_t*>(socket->landing.data) + socket->received,
            socket->buffer.data() + socket->begin, step);
      }
      socket->begin += step;
      socket->received += step;
    }
    if (socket->missing() > 0) break;
    socket->in_payload = false;
    receiver_->Arrived(socket->peer, socket->header, socket->landing);
  }
  std::memmove(socket->buffer.data(), socket->buffer.data() + socket->begin,
               socket->end - socket->begin);
  socket->end -= socket->begin;
  socket->begin = 0;
  return true;
}

void TcpTransport::DropLost(Socket* socket, const std::string& what) {
  if (ending_) {
    return Drop(socket, Cancelled("the transport was closed"));
  }
  if (socket->peer->expect_end.load()) {
    return Drop(socket, Cancelled(socket->peer->label() + " has left"));
  }
  Drop(socket, Unavailable(socket->peer->label() + " was lost: " + what +
                           "; the last message from it was a " +
                           Name(socket->last_kind) + ", " +
                           Seconds(NowMs() - socket->last_kind_ms) + " ago"));
}

void TcpTransport::Drop(Socket* socket, const Status& why) {
  socket->dead = true;
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, socket->fd, nullptr);
  if (!socket->open) {
    close(socket->fd);
    if (socket->dialed) RetryLater(socket->peer, why.message());
    return;
  }
  open_.erase(socket->peer->name());
  socket->peer->Shut(why);
  close(socket->fd);
  if (socket->in_payload) {
    receiver_->Abandoned(socket->peer, socket->header, socket->landing);
  }
  receiver_->Lost(socket->peer, why);
}

void TcpTransport::LogStranger(const Socket& socket, const std::string& why) {
  const int64_t now = NowMs();
  if (now - stranger_minute_ms_ > 60000) {
    stranger_minute_ms_ = now;
    stranger_lines_ = 0;
  }
  if (++stranger_lines_ > kStrangerLines) return;
  LogWarning("dropped a connection from " + socket.remote + ": " + why +
             (stranger_lines_ == kStrangerLines
                  ? " (no more such lines in this minute)"
                  : ""));
}

void TcpTransport::OnTimers(int64_t now) {
  next_timer_ms_ = now + kFarMs;
  auto check_at = [this](int64_t when) {
    next_timer_ms_ = std::min(next_timer_ms_, when);
  };
  for (size_t i = 0; i < sockets_.size(); ++i) {
    Socket* socket = sockets_[i].get();
    if (socket->dead) continue;
    if (!socket->open) {
      if (now < socket->deadline_ms) {
        check_at(socket->deadline_ms);
        continue;
      }
      if (!socket->dialed) LogStranger(*socket, "it sent no proper greeting");
      Drop(socket, Unavailable("no answer"));
      continue;
    }
    socket->liveness.Said(socket->peer->said_ms());
    if (socket->liveness.IsLost(now)) {
      DropLost(socket, "nothing was heard from it for " +
                           Seconds(socket->liveness.SilentMs(now)) +
                           " (failure_timeout)");
      continue;
    }
    if (socket->liveness.MustPing(now) && !socket->ended_sending) {
      // With something queued already the socket is full; a ping would not
      // help.
      if (!socket->peer->HasUnsent()) {
        socket->peer->Send(Header(), nullptr, [](Status) {});
      }
      socket->liveness.Said(now);
    }
    check_at(std::max(socket->liveness.NextCheckMs(), now + 1));
  }
  for (Dialing& dialing : dialings_) {
    if (dialing.busy || dialing.over || ending_) continue;
    if (now >= dialing.next_ms) {
      StartAttempt(&dialing);
    } else {
      check_at(dialing.next_ms);
    }
  }
  if (ending_) check_at(std::min(end_ms_, now + 50));
}

void TcpTransport::EndSendingWhereDone() {
  for (auto& socket : sockets_) {
    if (!socket->open || socket->dead || socket->ended_sending ||
        socket->peer->HasUnsent()) {
      continue;
    }
    // The peer reads to the end and closes; only then is nothing in between
    // thrown away by a reset.
    socket->ended_sending = true;
    shutdown(socket->fd, SHUT_WR);
  }
  next_timer_ms_ = std::min(next_timer_ms_, NowMs() + 50);
}

}  // namespace

std::unique_ptr<Transport> MakeTcpTransport(const Config& config,
                                            Receiver* receiver) {
  return std::make_unique<TcpTransport>(config, receiver);
}

}  // namespace byteps

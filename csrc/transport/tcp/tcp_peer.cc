#include "csrc/transport/tcp/tcp_peer.h"

#include <sys/epoll.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/memory/stream_copy.h"
#include "csrc/transport/describe.h"

namespace byteps {
namespace {

// Headers and small payloads come through it, many in one system call. What of
// a large payload comes in the same call as its header is copied once more, so
// little is read ahead of a header that probably announces one: where the last
// did.
constexpr size_t kBufferBytes = 64 << 10;
constexpr size_t kAheadBytes = 2 << 10;
constexpr size_t kLargeBytes = 8 << 10;
// How often one peer reads before the others have their turn.
constexpr int kReadTurns = 8;
// Messages in one system call, and completions before others have their turn.
constexpr size_t kBatch = 32;
// How often the length of a connection's queue is looked at.
constexpr int64_t kBoundMs = 10;
// A `sent` callback may Send, whose callback may Send, …: from this depth on
// the transport's thread goes on instead.
constexpr int kMaxDepth = 4;
thread_local int t_depth = 0;
// Less is not worth a place in shared memory.
constexpr uint64_t kLeastShared = 4096;
constexpr uint64_t kMaxOfferBytes = 512;

// A payload in the peer's region. Its end tells the peer.
class Borrowed final : public BufferSource {
 public:
  Borrowed(std::shared_ptr<const PeerRegion> region, uint64_t place,
           std::shared_ptr<std::atomic<TcpPeer*>> owner)
      : region_(std::move(region)), place_(place), owner_(std::move(owner)) {}

  void GiveBack(uint8_t*, size_t) override {
    if (TcpPeer* peer = owner_->load()) {
      Header header;
      header.kind = Kind::kReturned;
      header.place = place_;
      peer->Send(header, nullptr, nullptr);
    }
    delete this;
  }

 private:
  const std::shared_ptr<const PeerRegion> region_;
  const uint64_t place_;
  const std::shared_ptr<std::atomic<TcpPeer*>> owner_;
};

}  // namespace

TcpPeer::TcpPeer(Transport* transport, PeerOwner* owner, Poller* poller,
                 Receiver* receiver, RegionExchange* exchange,
                 const Config& config, const ProcessName& name,
                 const std::string& address)
    : Peer(transport, name, Label(name, address)),
      owner_(owner),
      poller_(poller),
      receiver_(receiver),
      exchange_(exchange),
      max_message_bytes_(config.max_message_bytes),
      timeout_ms_(config.failure_timeout_ms),
      liveness_(config.failure_timeout_ms, NowMs()),
      self_(std::make_shared<std::atomic<TcpPeer*>>(this)) {}

TcpPeer::~TcpPeer() { self_->store(nullptr); }

std::string TcpPeer::progress() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return progress_;
}

void TcpPeer::SetProgress(std::string progress) {
  std::lock_guard<std::mutex> lock(mutex_);
  progress_ = std::move(progress);
}

int TcpPeer::Open(Socket socket) {
  const int error = poller_->Add(socket, EPOLLIN, this);
  if (error != 0) return error;
  const int64_t now = NowMs();
  socket_ = std::move(socket);
  buffer_ = std::make_unique<uint8_t[]>(kBufferBytes);
  liveness_.Heard(now);
  (void)liveness_.Check(now, now);
  heard_message_ms_ = now;
  sent_ms_.store(now);
  std::lock_guard<std::mutex> lock(mutex_);
  progress_.clear();
  state_ = State::kOpen;
  return 0;
}

// ---- Sending

void TcpPeer::Send(const Header& header, const void* payload,
                   StatusCallback sent) {
  Header wire = header;
  Shown shown;
  if (sees_region_.load() && header.payload_bytes >= kLeastShared) {
    SharedRegion* region = exchange_->region();
    const void* where = payload;
    if (!region->Contains(payload)) {
      // Without room it goes over the connection: nothing here may wait for
      // what the peer does, which may wait for others.
      where = nullptr;
      if (region->Take(header.payload_bytes, &shown.copy)) {
        std::memcpy(shown.copy.data(), payload, header.payload_bytes);
        where = shown.copy.data();
      }
    }
    if (where != nullptr) {
      wire.in_place = true;
      wire.place = region->PlaceOf(where);
      region->shown_bytes.fetch_add(header.payload_bytes,
                                    std::memory_order_relaxed);
    }
  }
  std::unique_lock<std::mutex> lock(mutex_);
  if (state_ != State::kOpen) {
    Status why = end_;
    if (state_ == State::kDialing) {
      why = FailedPrecondition(label_ + " is not connected yet");
    } else if (state_ == State::kFlushing) {
      why = Cancelled("this process closes its connection to " + label_);
    }
    lock.unlock();
    if (sent) sent(std::move(why));
    return;
  }
  QueuedSend& message = queue_.PushBack();
  Encode(wire, message.header);
  message.payload = static_cast<const uint8_t*>(payload);
  message.payload_bytes = wire.in_place ? 0 : wire.payload_bytes;
  message.written = 0;
  if (wire.in_place && shown.copy.empty()) {
    message.sent = nullptr;
    shown.sent = std::move(sent);
  } else {
    message.sent = std::move(sent);
  }
  if (wire.in_place) shown_.emplace(wire.place, std::move(shown));
  if (writing_ || armed_ || send_error_ != 0) return;
  if (t_depth >= kMaxDepth) {
    armed_ = true;
    UpdateInterest();
    return;
  }
  writing_ = true;
  in_flight_.fetch_add(1);
  Write(&lock);
}

void TcpPeer::Write(std::unique_lock<std::mutex>* lock) {
  StatusCallback completed[kBatch];
  size_t completions = 0;
  while (completions < kBatch && !queue_.empty() &&
         (state_ == State::kOpen || state_ == State::kFlushing)) {
    // The headers are copied, since the queue may move in memory while this
    // thread is in the kernel without the lock.
    uint8_t headers[kBatch][Header::kBytes];
    iovec parts[2 * kBatch];
    size_t count = 0;
    uint64_t total = 0;
    const size_t messages = std::min(queue_.size(), kBatch - completions);
    for (size_t i = 0; i < messages; ++i) {
      const QueuedSend& message = queue_.at(i);
      uint64_t skip = message.written;
      if (skip < Header::kBytes) {
        std::memcpy(headers[i], message.header, Header::kBytes);
        parts[count++] = {headers[i] + skip, Header::kBytes - skip};
        skip = 0;
      } else {
        skip -= Header::kBytes;
      }
      if (skip < message.payload_bytes) {
        parts[count++] = {const_cast<uint8_t*>(message.payload) + skip,
                          message.payload_bytes - skip};
      }
      total += message.left();
    }
    msghdr text{};
    text.msg_iov = parts;
    text.msg_iovlen = count;
    lock->unlock();
    const ssize_t sent = sendmsg(socket_.fd(), &text, MSG_NOSIGNAL);
    const int error = errno;
    lock->lock();
    if (sent < 0) {
      if (error == EINTR) continue;
      if (error != EAGAIN && error != EWOULDBLOCK) send_error_ = error;
      break;
    }
    sent_ms_.store(NowMs(), std::memory_order_relaxed);
    auto left = static_cast<uint64_t>(sent);
    while (left > 0) {
      QueuedSend& message = queue_.at(0);
      const uint64_t part = std::min(left, message.left());
      message.written += part;
      left -= part;
      if (message.left() > 0) break;
      completed[completions++] = queue_.PopFront();
    }
    if (static_cast<uint64_t>(sent) < total) break;
  }
  writing_ = false;
  const int64_t now = NowMs();
  if (!queue_.empty() && now >= bounded_ms_ + kBoundMs) {
    bounded_ms_ = now;
    bounded_ = BoundQueue(socket_, bounded_);
  }
  const bool more = !queue_.empty() && send_error_ == 0 &&
                    (state_ == State::kOpen || state_ == State::kFlushing);
  if (more != armed_) {
    armed_ = more;
    UpdateInterest();
  }
  bool attend =
      send_error_ != 0 || (state_ == State::kFlushing && queue_.empty());
  lock->unlock();

  ++t_depth;
  for (size_t i = 0; i < completions; ++i) {
    if (completed[i]) completed[i](OkStatus());
  }
  --t_depth;
  if (in_flight_.fetch_sub(1) == 1 && ending_.load()) attend = true;
  if (attend) owner_->NeedAttention();
}

void TcpPeer::UpdateInterest() {
  if (state_ != State::kOpen && state_ != State::kFlushing) return;
  poller_->Modify(socket_, (reading_ ? EPOLLIN : 0u) | (armed_ ? EPOLLOUT : 0u),
                  this);
}

// ---- Receiving

void TcpPeer::Ready(uint32_t events) {
  if (ending_.load()) return;
  if ((events & EPOLLOUT) != 0) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (armed_ && !writing_) {
      writing_ = true;
      in_flight_.fetch_add(1);
      Write(&lock);
    }
  }
  if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) {
    ReadAndReport(kReadTurns);
  }
}

void TcpPeer::ReadNow() {
  constexpr int kUntilEmpty = 1 << 20;
  if (!ending_.load()) ReadAndReport(kUntilEmpty);
}

void TcpPeer::ReadAndReport(int turns) {
  const Status status = Read(turns);
  if (status.ok() || ending_.load()) return;
  if (status.code() == Code::kCancelled) {
    // The other end closes too. It still reads what is queued here.
    std::lock_guard<std::mutex> lock(mutex_);
    if (state_ == State::kFlushing && !shut_ && reading_ && send_error_ == 0) {
      reading_ = false;
      UpdateInterest();
      return;
    }
  }
  owner_->Broken(this, status);
}

Status TcpPeer::Read(int turns) {
  for (int turn = 0; turn < turns; ++turn) {
    iovec parts[2];
    int count = 1;
    const bool direct = payload_left_ > 0 && payload_at_ != nullptr;
    const bool large = header_.payload_bytes > kLargeBytes && !header_.in_place;
    const bool drops = payload_left_ > 0 && payload_at_ == nullptr;
    const size_t ahead = large && !drops ? kAheadBytes : kBufferBytes;
    if (direct) {
      parts[0] = {payload_at_, payload_left_};
      parts[1] = {buffer_.get(), ahead};
      count = 2;
    } else {
      if (begin_ > 0) {
        std::memmove(buffer_.get(), buffer_.get() + begin_,
                     end_of_buffer_ - begin_);
        end_of_buffer_ -= begin_;
        begin_ = 0;
      }
      parts[0] = {buffer_.get() + end_of_buffer_, ahead - end_of_buffer_};
    }
    const ssize_t got = readv(socket_.fd(), parts, count);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return OkStatus();
      return EndOfStream(errno);
    }
    if (got == 0) return EndOfStream(0);
    liveness_.Heard(NowMs());
    auto bytes = static_cast<size_t>(got);
    bool drained = false;
    if (direct) {
      drained = bytes < payload_left_ + ahead;
      const size_t landed = std::min<uint64_t>(bytes, payload_left_);
      payload_at_ += landed;
      payload_left_ -= landed;
      begin_ = 0;
      end_of_buffer_ = bytes - landed;
      if (payload_left_ == 0) Arrived();
    } else {
      drained = bytes < parts[0].iov_len;
      end_of_buffer_ += bytes;
    }
    Status status = Parse();
    if (!status.ok()) return status;
    // The poller tells when there is more.
    if (drained) return OkStatus();
  }
  return OkStatus();
}

Status TcpPeer::Parse() {
  for (;;) {
    if (payload_left_ > 0) {
      const size_t here =
          std::min<uint64_t>(end_of_buffer_ - begin_, payload_left_);
      if (here > 0 && payload_at_ != nullptr) {
        std::memcpy(payload_at_, buffer_.get() + begin_, here);
        payload_at_ += here;
      }
      begin_ += here;
      payload_left_ -= here;
      if (payload_left_ > 0) break;
      Arrived();
    }
    if (end_of_buffer_ - begin_ < Header::kBytes) break;
    const uint8_t* bytes = buffer_.get() + begin_;
    begin_ += Header::kBytes;
    Status status = BeginMessage(bytes);
    if (!status.ok()) return status;
  }
  if (begin_ == end_of_buffer_) begin_ = end_of_buffer_ = 0;
  return OkStatus();
}

Status TcpPeer::BeginMessage(const uint8_t* bytes) {
  Result<Header> header = DecodeHeader(bytes);
  if (!header.ok()) {
    return Reason("broke the protocol: it sent " + header.status().message());
  }
  header_ = header.value();
  heard_message_ = true;
  heard_message_ms_ = NowMs();
  const uint64_t size = header_.payload_bytes;
  if (size > max_message_bytes_) {
    return Reason("broke the protocol: it announced a " + Describe(header_) +
                  " of " + std::to_string(size) + " bytes, more than " +
                  std::to_string(max_message_bytes_));
  }
  switch (header_.kind) {
    case Kind::kPing:
    case Kind::kShared:
    case Kind::kReturned:
      if (size > 0 || header_.in_place) {
        return Reason("broke the protocol: it sent a " +
                      std::string(Name(header_.kind)) + " of " +
                      std::to_string(size) + " bytes");
      }
      // Who was never asked has nothing to return, nor anything to see.
      if (header_.kind == Kind::kShared) sees_region_.store(offered_);
      if (header_.kind == Kind::kReturned) Returned(header_.place);
      return OkStatus();
    case Kind::kShare:
      if (size == 0 || size > kMaxOfferBytes || header_.in_place) {
        return Reason("broke the protocol: it sent an offer of " +
                      std::to_string(size) + " bytes");
      }
      offer_.resize(size);
      payload_at_ = offer_.data();
      payload_left_ = size;
      return OkStatus();
    default:
      break;
  }
  if (header_.in_place) return TakePayloadInPlace();
  landing_ = receiver_->Land(this, header_);
  if (!landing_.accept) {
    return Reason("broke the protocol: its " + Describe(header_) + " of " +
                  std::to_string(size) + " bytes was not expected");
  }
  in_message_ = true;
  payload_at_ = static_cast<uint8_t*>(landing_.data);
  payload_left_ = size;
  if (size == 0) Arrived();
  return OkStatus();
}

void TcpPeer::Arrived() {
  if (header_.kind == Kind::kShare) return TakeOffer();
  in_message_ = false;
  receiver_->Arrived(this, header_, landing_);
}

// ---- Shared memory

void TcpPeer::OfferToShare() {
  ShareOffer offer;
  if (!exchange_->works() || !exchange_->MakeOffer(&offer)) return;
  asked_ = true;
  ticket_ = offer.ticket;
  auto body = std::make_shared<const std::vector<uint8_t>>(Encode(offer));
  Header header;
  header.kind = Kind::kShare;
  header.payload_bytes = body->size();
  Send(header, body->data(), [body](Status) {});
}

void TcpPeer::TakeOffer() {
  if (!exchange_->works() || offered_) return;
  const Result<ShareOffer> offer =
      DecodeShareOffer(offer_.data(), offer_.size());
  const int error = offer.ok() ? exchange_->Show(offer.value()) : EBADMSG;
  offered_ = error == 0;
  if (!offered_) {
    LogDebug(label_ + " shares no memory with this process: " +
             (error == EXDEV ? "it is elsewhere" : ErrorText(error)));
  }
}

void TcpPeer::TakeRegion(int fd) {
  asked_ = false;
  std::string why;
  region_ = PeerRegion::Map(fd, &why);
  if (region_ == nullptr) {
    LogDebug("the memory of " + label_ + " is of no use: " + why);
    return;
  }
  Header header;
  header.kind = Kind::kShared;
  Send(header, nullptr, nullptr);
}

Status TcpPeer::TakePayloadInPlace() {
  const uint64_t size = header_.payload_bytes;
  uint8_t* data =
      region_ == nullptr ? nullptr : region_->At(header_.place, size);
  if (data == nullptr) {
    return Reason("broke the protocol: its " + Describe(header_) +
                  " is not in the memory it shares");
  }
  // Read or not, the peer gets it back at the end of this scope, or with what
  // the receiver keeps.
  Buffer payload(new Borrowed(region_, header_.place, self_), data, size, size,
                 true);
  landing_ = receiver_->Land(this, header_);
  if (!landing_.accept) {
    return Reason("broke the protocol: its " + Describe(header_) + " of " +
                  std::to_string(size) + " bytes was not expected");
  }
  if (landing_.keeps) {
    landing_.kept = &payload;
  } else if (landing_.data != nullptr) {
    StreamCopy(landing_.data, data, size);
  }
  receiver_->Arrived(this, header_, landing_);
  return OkStatus();
}

void TcpPeer::Returned(uint64_t place) {
  Shown shown;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = shown_.find(place);
    if (it == shown_.end()) return;
    shown = std::move(it->second);
    shown_.erase(it);
  }
  if (shown.sent) shown.sent(OkStatus());
}

void TcpPeer::TakeIn(const uint8_t* data, size_t bytes) {
  std::memcpy(buffer_.get(), data, bytes);
  end_of_buffer_ = bytes;
  const Status status = Parse();
  if (!status.ok()) owner_->Broken(this, status);
}

// ---- Life and end

void TcpPeer::CheckLiveness(int64_t now_ms) {
  std::unique_lock<std::mutex> lock(mutex_);
  // What waits in the queue says more than a ping behind it could.
  const bool can_ping =
      state_ == State::kOpen && queue_.empty() && !writing_ && send_error_ == 0;
  lock.unlock();
  switch (liveness_.Check(
      now_ms, can_ping ? sent_ms_.load(std::memory_order_relaxed) : now_ms)) {
    case Liveness::Verdict::kFine:
      return;
    case Liveness::Verdict::kPing:
      Send(Header(), nullptr, nullptr);
      return;
    case Liveness::Verdict::kLost:
      owner_->Broken(this, Reason("was lost: nothing heard for " +
                                  Seconds(liveness_.SilenceMs(now_ms))));
      return;
  }
}

Status TcpPeer::Reason(const std::string& what) const {
  const std::string ago = Seconds(NowMs() - heard_message_ms_) + " ago";
  const std::string last =
      heard_message_
          ? "the last thing heard was a " + Describe(header_) + " " + ago
          : "it connected " + ago + " and sent nothing";
  const bool expected = end_expected_.load() || closing_.load();
  return Status(expected ? Code::kCancelled : Code::kUnavailable,
                label_ + " " + what + "; " + last);
}

Status TcpPeer::EndOfStream(int error) const {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    // A failed send takes the reason off the socket.
    if (error == 0) error = send_error_;
  }
  if (error == 0) {
    return Reason("closed the connection (its process ended)");
  }
  if (error == ECONNRESET || error == EPIPE) {
    return Reason("reset the connection (its process ended)");
  }
  return Reason("was lost: " + ErrorText(error));
}

void TcpPeer::BeginClose() {
  closing_.store(true);
  std::lock_guard<std::mutex> lock(mutex_);
  if (state_ == State::kOpen) state_ = State::kFlushing;
}

void TcpPeer::Attend() {
  if (ending_.load()) return;
  bool failed = false, over = false;
  int error = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    error = send_error_;
    failed = error != 0;
    if (!failed && state_ == State::kFlushing && queue_.empty() && !writing_ &&
        !shut_) {
      shut_ = true;
      shutdown(socket_.fd(), SHUT_WR);
      over = !reading_;
    }
  }
  if (failed) {
    // What the peer sent before it went is still to be read: it may explain.
    ReadNow();
    if (!ending_.load()) owner_->Broken(this, EndOfStream(error));
  } else if (over) {
    owner_->Broken(this, Reason("closed the connection"));
  }
}

void TcpPeer::BeginEnd(const Status& why) {
  if (ending_.load()) return;
  why_ = why;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    state_ = State::kEnded;
    end_ = why;
  }
  poller_->Remove(socket_);
  ending_.store(true);
}

bool TcpPeer::FinishEnd() {
  if (told_) return true;
  // A thread that is in the kernel with a payload, or in a callback, calls for
  // attention when it is through.
  if (in_flight_.load() != 0) return false;
  told_ = true;
  SendQueue unsent;
  std::multimap<uint64_t, Shown> shown;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    std::swap(unsent, queue_);
    std::swap(shown, shown_);
  }
  for (auto& entry : shown) {
    // It may only have been slow, and yet read this.
    exchange_->region()->Retire(entry.first);
    if (entry.second.sent) entry.second.sent(why_);
  }
  while (!unsent.empty()) {
    StatusCallback sent = unsent.PopFront();
    if (sent) sent(why_);
  }
  // A forked child may hold a copy of the descriptor, which would keep the
  // connection alive; the end of the stream does not depend on it.
  shutdown(socket_.fd(), SHUT_RDWR);
  socket_.Close();
  buffer_.reset();
  if (in_message_) {
    in_message_ = false;
    receiver_->Abandoned(this, header_, landing_);
  }
  receiver_->Lost(this, why_);
  return true;
}

void TcpPeer::EndUnopened(const Status& why) {
  std::lock_guard<std::mutex> lock(mutex_);
  state_ = State::kEnded;
  end_ = why;
  ending_.store(true);
}

}  // namespace byteps

// One process at the other end of a TCP connection: the stream of messages in
// both directions, and its end.
//
//   dialing ──► open ──► flushing ──► ending ──► ended
//      │          └─────────────────────▲          ▲
//      └───────────────────────────────────────────┘
//
// Owned by the transport. Send, ExpectEnd and progress are for any thread, the
// rest is for the transport's.
#ifndef BYTEPS_TRANSPORT_TCP_TCP_PEER_H_
#define BYTEPS_TRANSPORT_TCP_TCP_PEER_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/base/config.h"
#include "csrc/base/status.h"
#include "csrc/memory/shared_region.h"
#include "csrc/transport/liveness.h"
#include "csrc/transport/tcp/poller.h"
#include "csrc/transport/tcp/region_exchange.h"
#include "csrc/transport/tcp/send_queue.h"
#include "csrc/transport/tcp/socket.h"
#include "csrc/transport/transport.h"

namespace byteps {

class TcpPeer;

// What a peer tells the transport.
class PeerOwner {
 public:
  virtual ~PeerOwner() = default;
  // The connection is over. On the transport's thread.
  virtual void Broken(TcpPeer* peer, const Status& why) = 0;
  // Attend is to be called soon. From any thread.
  virtual void NeedAttention() = 0;
};

class TcpPeer final : public Peer, public Source {
 public:
  TcpPeer(Transport* transport, PeerOwner* owner, Poller* poller,
          Receiver* receiver, RegionExchange* exchange, const Config& config,
          const ProcessName& name, const std::string& address);
  ~TcpPeer() override;

  // Any thread.
  void Send(const Header& header, const void* payload, StatusCallback sent);
  void ExpectEnd() { end_expected_.store(true); }
  std::string progress() const override;
  void SetProgress(std::string progress);

  // The transport's thread.
  int Open(Socket socket);  // 0 or errno
  // Bytes that came together with the end of the greeting.
  void TakeIn(const uint8_t* data, size_t bytes);
  void Ready(uint32_t events) override;
  // Asks the peer to show its region.
  void OfferToShare();
  bool HasTicket(const Ticket& ticket) const {
    return asked_ && ticket == ticket_;
  }
  // The peer's region, which it has shown. Takes `fd`.
  void TakeRegion(int fd);
  // Looks for bytes, or the end, that no event has told of yet.
  void ReadNow();
  void CheckLiveness(int64_t now_ms);
  // No more Sends; what is queued still goes out, then the stream ends.
  void BeginClose();
  // Refuses all that comes from now on. FinishEnd has to follow until it is
  // true: it completes the sends, then says Lost.
  void BeginEnd(const Status& why);
  bool FinishEnd();
  // It was never open. Nobody is told.
  void EndUnopened(const Status& why);
  // Goes on with what another thread's Send left to do.
  void Attend();

  bool ending() const { return ending_.load(); }

 private:
  enum class State { kDialing, kOpen, kFlushing, kEnded };

  // Reads at most `turns` times. OK, or why the stream is over.
  Status Read(int turns);
  Status Parse();
  Status BeginMessage(const uint8_t* bytes);
  void Arrived();
  Status TakePayloadInPlace();
  void TakeOffer();
  void Returned(uint64_t place);
  void ReadAndReport(int turns);
  // mutex_ held by `lock`, released on return; writing_ and in_flight_ are set.
  void Write(std::unique_lock<std::mutex>* lock);
  void UpdateInterest();  // mutex_ held
  // What ended the stream, as a sentence.
  Status Reason(const std::string& what) const;
  Status EndOfStream(int error) const;

  // A payload in this process's region, which the peer may read.
  struct Shown {
    Buffer copy;          // of the payload, or …
    StatusCallback sent;  // … it lies there by itself until this is called
  };

  PeerOwner* const owner_;
  Poller* const poller_;
  Receiver* const receiver_;
  RegionExchange* const exchange_;
  const uint64_t max_message_bytes_;
  const int64_t timeout_ms_;

  std::atomic<bool> end_expected_{false};
  std::atomic<bool> closing_{false};
  std::atomic<bool> ending_{false};
  std::atomic<bool> sees_region_{false};  // the peer has ours mapped
  // Threads between becoming the writer and the return of the callbacks.
  std::atomic<int> in_flight_{0};
  std::atomic<int64_t> sent_ms_{0};

  mutable std::mutex mutex_;
  State state_ = State::kDialing;  // guarded by mutex_
  Status end_;                     // guarded by mutex_; once state_ is kEnded
  SendQueue queue_;                // guarded by mutex_
  bool writing_ = false;           // guarded by mutex_; somebody is in sendmsg
  bool armed_ = false;      // guarded by mutex_; EPOLLOUT goes on with queue_
  bool reading_ = true;     // guarded by mutex_; false after the end of stream
  bool shut_ = false;       // guarded by mutex_; our end of stream is out
  bool bounded_ = false;    // guarded by mutex_; see BoundQueue
  int64_t bounded_ms_ = 0;  // guarded by mutex_; when that was last looked at
  int send_error_ = 0;      // guarded by mutex_
  std::multimap<uint64_t, Shown> shown_;    // by place; guarded by mutex_
  std::string progress_ = "not tried yet";  // guarded by mutex_

  // The transport's thread only; socket_ also for the writer, which in_flight_
  // protects from its end.
  Socket socket_;
  Liveness liveness_;
  std::unique_ptr<uint8_t[]> buffer_;
  size_t begin_ = 0, end_of_buffer_ = 0;
  Header header_;  // the last one that came
  bool heard_message_ = false;
  int64_t heard_message_ms_ = 0;
  bool in_message_ = false;  // between Land and Arrived
  Landing landing_;
  uint8_t* payload_at_ = nullptr;  // null: discard
  uint64_t payload_left_ = 0;
  bool asked_ = false;    // and has not shown it yet
  bool offered_ = false;  // the peer was shown ours
  Ticket ticket_{};
  std::vector<uint8_t> offer_;
  std::shared_ptr<const PeerRegion> region_;
  // Whom to tell that a payload is read; null once this is gone.
  std::shared_ptr<std::atomic<TcpPeer*>> self_;
  Status why_;
  bool told_ = false;
};

}  // namespace byteps

#endif  // BYTEPS_TRANSPORT_TCP_TCP_PEER_H_

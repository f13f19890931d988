// A named peer's outgoing half: the queue of what waits for the socket.
//
// Owned by the TCP transport. Any thread may call Send; Open, Flush and Shut
// are the epoll thread's. Callbacks are never called under the lock.
#ifndef BYTEPS_TRANSPORT_TCP_TCP_PEER_H_
#define BYTEPS_TRANSPORT_TCP_TCP_PEER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/transport/transport.h"

namespace byteps {

class TcpPeer : public Peer {
 public:
  TcpPeer(Transport* transport, ProcessName name, std::string address);

  std::string progress() const override;
  void set_progress(std::string text);
  const std::string& address() const { return address_; }

  void Send(const Header& header, const void* payload, StatusCallback sent);

  // The socket stands; `epoll_fd` watches it with `epoll_data`.
  void Open(int fd, int epoll_fd, void* epoll_data);
  // Sends what the socket takes now.
  void Flush();
  // No more sends: what waits completes with `why`. The socket is not closed.
  void Shut(const Status& why);
  bool HasUnsent() const;
  // When something was last given to the socket.
  int64_t said_ms() const { return said_ms_.load(std::memory_order_relaxed); }

  std::atomic<bool> expect_end{false};

 private:
  struct Message {
    uint8_t header[Header::kBytes];
    const uint8_t* payload;
    size_t payload_bytes;
    size_t done = 0;  // of header and payload together
    StatusCallback sent;

    size_t size() const { return Header::kBytes + payload_bytes; }
  };

  // Needs mutex_. Moves the messages that are out to `completed`.
  void WriteLocked(std::vector<StatusCallback>* completed);
  void WatchLocked(bool writable);

  const std::string address_;
  std::atomic<int64_t> said_ms_{0};

  mutable std::mutex mutex_;
  std::string progress_;       // guarded by mutex_
  int fd_ = -1;                // guarded by mutex_; -1: not open
  int epoll_fd_ = -1;          // guarded by mutex_
  void* epoll_data_ = nullptr;  // guarded by mutex_
  bool watched_ = false;       // waits for the socket; guarded by mutex_
  Status shut_;                // guarded by mutex_
  std::deque<Message> queue_;  // guarded by mutex_
};

}  // namespace byteps

#endif  // BYTEPS_TRANSPORT_TCP_TCP_PEER_H_

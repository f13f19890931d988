// Waits on many descriptors at once, and lets other threads end the wait.
//
// Owned by the transport. Wait is for its thread; the other methods are for
// any.
#ifndef BYTEPS_TRANSPORT_TCP_POLLER_H_
#define BYTEPS_TRANSPORT_TCP_POLLER_H_

#include <cstdint>

#include "csrc/base/status.h"
#include "csrc/transport/tcp/socket.h"

namespace byteps {

// What a descriptor belongs to. Lives until the Wait after its Remove.
class Source {
 public:
  virtual ~Source() = default;
  // `events` as epoll gives them.
  virtual void Ready(uint32_t events) = 0;
};

class Poller {
 public:
  Poller();
  const Status& status() const { return status_; }

  // Level-triggered. 0 or errno.
  int Add(const Socket& socket, uint32_t events, Source* source);
  void Modify(const Socket& socket, uint32_t events, Source* source);
  void Remove(const Socket& socket);

  void Wake();
  // Calls Ready of what is ready; returns when something was, after Wake, or
  // after `timeout_ms` (negative: never).
  void Wait(int64_t timeout_ms);

 private:
  Socket epoll_;
  Socket wake_;
  Status status_;
};

}  // namespace byteps

#endif  // BYTEPS_TRANSPORT_TCP_POLLER_H_

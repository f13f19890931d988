// Transports that talk inside one process: a worker to the server in it, and
// tests. A payload is copied once, from the sender's memory to where it lands.
#ifndef BYTEPS_TRANSPORT_LOOPBACK_LOOPBACK_TRANSPORT_H_
#define BYTEPS_TRANSPORT_LOOPBACK_LOOPBACK_TRANSPORT_H_

#include <memory>
#include <mutex>
#include <vector>

#include "csrc/base/config.h"
#include "csrc/transport/transport.h"

namespace byteps {

class LoopbackTransport;

// Where loopback transports find each other by address. Outlives them. All of
// their state is guarded by its one mutex: it is held for moments only, never
// while a payload is copied or a receiver called.
class LoopbackHub {
 private:
  friend class LoopbackTransport;
  std::mutex mutex_;
  std::vector<LoopbackTransport*> transports_;  // guarded by mutex_
};

// A process may dial itself: that makes one Peer, and what is sent to it
// arrives at the process's own receiver. `receiver` and `hub` must outlive the
// transport.
std::unique_ptr<Transport> MakeLoopbackTransport(const Config& config,
                                                 Receiver* receiver,
                                                 LoopbackHub* hub);

}  // namespace byteps

#endif  // BYTEPS_TRANSPORT_LOOPBACK_LOOPBACK_TRANSPORT_H_

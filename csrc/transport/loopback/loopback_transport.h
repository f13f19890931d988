// A transport inside one process: tests, and a worker's own server.
//
// Payloads are copied once, from the sender's memory to the landing, on the
// receiving side's thread. A process may dial itself: its one peer is then both
// ends.
#ifndef BYTEPS_TRANSPORT_LOOPBACK_LOOPBACK_TRANSPORT_H_
#define BYTEPS_TRANSPORT_LOOPBACK_LOOPBACK_TRANSPORT_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/transport/transport.h"

namespace byteps {

class LoopbackTransport;

// Where the transports of one process find each other. Outlives them.
class LoopbackHub {
 private:
  friend class LoopbackTransport;
  struct Waiting {
    LoopbackTransport* dialer;
    Peer* peer;
  };
  std::mutex mutex_;
  std::map<std::string, LoopbackTransport*> listening_;
  std::map<std::string, std::vector<Waiting>> waiting_;  // for a listener
};

std::unique_ptr<Transport> MakeLoopbackTransport(const Config& config,
                                                 Receiver* receiver,
                                                 LoopbackHub* hub);

}  // namespace byteps

#endif  // BYTEPS_TRANSPORT_LOOPBACK_LOOPBACK_TRANSPORT_H_

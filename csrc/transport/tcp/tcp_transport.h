// The transport that is always there: one TCP connection to each peer, all of
// them on one thread with epoll.
//
// Send writes on the caller's thread while the socket takes it; the rest goes
// out when the socket has room. Payloads are read straight to where they land.
// Who connects is a stranger until the handshake (wire/handshake.h) is through:
// it may send less than 1 KiB, has 5 s, and is dropped with one warning if it
// turns out to be something else; the job goes on.
#ifndef BYTEPS_TRANSPORT_TCP_TCP_TRANSPORT_H_
#define BYTEPS_TRANSPORT_TCP_TCP_TRANSPORT_H_

#include <memory>

#include "csrc/base/config.h"
#include "csrc/memory/shared_region.h"
#include "csrc/transport/transport.h"

namespace byteps {

// `receiver` must outlive the transport. Close may take longer than its timeout
// while a host name is being looked up.
// With a `region` the payloads for peers on this host stay in it; see
// docs/design/0008-shared-memory.md.
std::unique_ptr<Transport> MakeTcpTransport(
    const Config& config, Receiver* receiver,
    std::shared_ptr<SharedRegion> region = nullptr);

}  // namespace byteps

#endif  // BYTEPS_TRANSPORT_TCP_TCP_TRANSPORT_H_

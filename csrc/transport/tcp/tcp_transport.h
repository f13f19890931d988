// The transport that is always there: one TCP connection for each pair of
// processes, one epoll thread for each process.
//
// A send goes out on the caller's thread as far as the socket takes it; the
// epoll thread sends the rest. Payloads are read straight into their landing.
// It needs nothing from the peer but the handshake (wire/handshake.h), and
// drops whoever does not pass that within seconds.
#ifndef BYTEPS_TRANSPORT_TCP_TCP_TRANSPORT_H_
#define BYTEPS_TRANSPORT_TCP_TCP_TRANSPORT_H_

#include <memory>

#include "csrc/transport/transport.h"

namespace byteps {

std::unique_ptr<Transport> MakeTcpTransport(const Config& config,
                                            Receiver* receiver);

}  // namespace byteps

#endif  // BYTEPS_TRANSPORT_TCP_TCP_TRANSPORT_H_

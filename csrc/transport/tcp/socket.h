// The little of the socket API that the TCP transport needs, with descriptors
// that close themselves and errors as errno values.
#ifndef BYTEPS_TRANSPORT_TCP_SOCKET_H_
#define BYTEPS_TRANSPORT_TCP_SOCKET_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/status.h"

namespace byteps {

// Owns a file descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Socket() { Close(); }

  int fd() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
};

struct HostPort {
  std::string host;
  uint16_t port = 0;
};

// "host:port", "10.0.0.1:2222", "[::1]:2222".
Result<HostPort> SplitAddress(const std::string& address);

// A socket address of either family.
struct Endpoint {
  sockaddr_storage address{};
  socklen_t bytes = 0;

  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&address);
  }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&address); }
};

std::string HostOf(const Endpoint& endpoint);    // "10.0.0.1"
std::string ToString(const Endpoint& endpoint);  // "10.0.0.1:2222"

bool IsLoopback(const Endpoint& endpoint);

// Without asking anybody; empty if `host` is a name.
std::vector<Endpoint> ParseNumeric(const HostPort& where);
// May take seconds when the host's name service does. An error says why.
Result<std::vector<Endpoint>> Resolve(const HostPort& where);

// All sockets are non-blocking and closed on exec. 0 or errno.
int ListenAt(const Endpoint& endpoint, Socket* out);
// EINPROGRESS is success.
int StartConnect(const Endpoint& endpoint, Socket* out);
// What became of a connect that has ended.
int ConnectError(const Socket& socket);
// A port in the ephemeral range on which nobody listens may be connected to
// itself.
bool IsConnectedToItself(const Socket& socket);
// 0 or errno; EAGAIN when nobody waits.
int AcceptFrom(const Socket& listener, Socket* out, Endpoint* from);

// For a connection that carries messages: no delay, and the kernel gives up
// after `timeout_ms` without an acknowledgement.
void PrepareStream(const Socket& socket, int64_t timeout_ms);

// The kernel lets a connection's queue grow until the network drops something,
// and what is sent waits behind it, on this connection and on those that share
// a link with it. This bounds the queue to some milliseconds of the rate that
// the connection has. For a connection whose queue is full, now and then; takes
// and returns whether there is a bound.
bool BoundQueue(const Socket& socket, bool bounded);

// "connection refused": strerror, in lower case, for the middle of a sentence.
std::string ErrorText(int error);

}  // namespace byteps

#endif  // BYTEPS_TRANSPORT_TCP_SOCKET_H_

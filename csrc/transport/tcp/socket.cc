#include "csrc/transport/tcp/socket.h"

#include <linux/tcp.h>  // with the kernel's whole tcp_info
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

namespace byteps {
namespace {

constexpr int kFlags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

// How much a connection keeps queued in the network, above what is on its way
// there anyway: in time, and at least.
constexpr uint64_t kQueueUs = 4000;
constexpr uint64_t kQueueBytes = 16 << 10;
// What a kernel grants without tuning. A path that needs more stays the
// kernel's matter, which never widens a queue again that was bounded.
constexpr uint64_t kMostBytes = 200 << 10;

void SetOption(const Socket& socket, int level, int option, int value) {
  // All of these are improvements; a kernel that lacks one still works.
  (void)setsockopt(socket.fd(), level, option, &value, sizeof(value));
}

// Where the system's default is bbr. To see how long its path is, bbr has next
// to nothing on its way for 200 ms every 10 s: a good part of a step, in each
// step where there are 10 s between them. What it is for, a network whose
// losses mean nothing, is not between the hosts of a job. Before the connection
// begins, or the kernel goes on to pace it.
void UseNoBbr(const Socket& socket) {
  constexpr char kBbr[] = "bbr", kCubic[] = "cubic";
  char name[16] = {};
  socklen_t bytes = sizeof(name) - 1;
  if (getsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, name, &bytes) == 0 &&
      std::strcmp(name, kBbr) == 0) {
    (void)setsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, kCubic,
                     sizeof(kCubic) - 1);
  }
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

// 0 or a getaddrinfo error; `errno_out` for EAI_SYSTEM.
int Lookup(const HostPort& where, int flags, std::vector<Endpoint>* out) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(
      where.host.c_str(), std::to_string(where.port).c_str(), &hints, &list);
  if (error != 0) return error;
  std::unique_ptr<addrinfo, FreeAddresses> owner(list);
  for (const addrinfo* it = list; it != nullptr; it = it->ai_next) {
    if (it->ai_family != AF_INET && it->ai_family != AF_INET6) continue;
    Endpoint endpoint;
    endpoint.bytes = it->ai_addrlen;
    std::memcpy(&endpoint.address, it->ai_addr, it->ai_addrlen);
    const bool known =
        std::any_of(out->begin(), out->end(), [&](const Endpoint& other) {
          return other.bytes == endpoint.bytes &&
                 std::memcmp(&other.address, &endpoint.address,
                             endpoint.bytes) == 0;
        });
    if (!known) out->push_back(endpoint);
  }
  return 0;
}

}  // namespace

void Socket::Close() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

Result<HostPort> SplitAddress(const std::string& address) {
  const Status bad = InvalidArgument("address must be host:port. Received: \"" +
                                     address + "\"");
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return bad;
  HostPort where;
  where.host = address.substr(0, colon);
  if (where.host.size() >= 2 && where.host.front() == '[' &&
      where.host.back() == ']') {
    where.host = where.host.substr(1, where.host.size() - 2);
  } else if (where.host.find(':') != std::string::npos) {
    return bad;
  }
  const std::string port = address.substr(colon + 1);
  if (where.host.empty() || port.empty() || port.size() > 5) return bad;
  uint32_t number = 0;
  for (const char c : port) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0) return bad;
    number = number * 10 + static_cast<uint32_t>(c - '0');
  }
  if (number == 0 || number > 65535) return bad;
  where.port = static_cast<uint16_t>(number);
  return where;
}

std::string HostOf(const Endpoint& endpoint) {
  char host[NI_MAXHOST];
  if (getnameinfo(endpoint.get(), endpoint.bytes, host, sizeof(host), nullptr,
                  0, NI_NUMERICHOST) != 0) {
    return "an unknown address";
  }
  const std::string text = host;
  const std::string mapped = "::ffff:";
  return text.compare(0, mapped.size(), mapped) == 0
             ? text.substr(mapped.size())
             : text;
}

std::string ToString(const Endpoint& endpoint) {
  char port[NI_MAXSERV];
  if (getnameinfo(endpoint.get(), endpoint.bytes, nullptr, 0, port,
                  sizeof(port), NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  const std::string host = HostOf(endpoint);
  if (host.find(':') != std::string::npos) return "[" + host + "]:" + port;
  return host + ":" + port;
}

bool IsLoopback(const Endpoint& endpoint) {
  if (endpoint.address.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&endpoint.address);
    return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&endpoint.address);
  return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

std::vector<Endpoint> ParseNumeric(const HostPort& where) {
  std::vector<Endpoint> found;
  (void)Lookup(where, AI_NUMERICHOST, &found);
  return found;
}

Result<std::vector<Endpoint>> Resolve(const HostPort& where) {
  std::vector<Endpoint> found;
  const int error = Lookup(where, 0, &found);
  if (error == 0 && !found.empty()) return found;
  const std::string why = error == 0            ? "no internet address"
                          : error == EAI_SYSTEM ? ErrorText(errno)
                                                : gai_strerror(error);
  return Unavailable("the name " + where.host + " does not resolve (" + why +
                     ")");
}

int ListenAt(const Endpoint& endpoint, Socket* out) {
  const int family = endpoint.address.ss_family;
  Socket socket(::socket(family, kFlags, 0));
  if (!socket.valid()) return errno;
  // A port whose last connections linger is free for the next process.
  SetOption(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  UseNoBbr(socket);  // nor the connections that it accepts
  if (family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&endpoint.address);
    SetOption(socket, IPPROTO_IPV6, IPV6_V6ONLY,
              IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr) ? 0 : 1);
  }
  if (bind(socket.fd(), endpoint.get(), endpoint.bytes) != 0) return errno;
  if (listen(socket.fd(), SOMAXCONN) != 0) return errno;
  *out = std::move(socket);
  return 0;
}

int StartConnect(const Endpoint& endpoint, Socket* out) {
  Socket socket(::socket(endpoint.address.ss_family, kFlags, 0));
  if (!socket.valid()) return errno;
  UseNoBbr(socket);
  if (connect(socket.fd(), endpoint.get(), endpoint.bytes) != 0 &&
      errno != EINPROGRESS) {
    return errno;
  }
  *out = std::move(socket);
  return 0;
}

int ConnectError(const Socket& socket) {
  int error = 0;
  socklen_t bytes = sizeof(error);
  if (getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) {
    return errno;
  }
  return error;
}

bool IsConnectedToItself(const Socket& socket) {
  Endpoint here, there;
  here.bytes = there.bytes = sizeof(sockaddr_storage);
  return getsockname(socket.fd(), here.get(), &here.bytes) == 0 &&
         getpeername(socket.fd(), there.get(), &there.bytes) == 0 &&
         here.bytes == there.bytes &&
         std::memcmp(&here.address, &there.address, here.bytes) == 0;
}

int AcceptFrom(const Socket& listener, Socket* out, Endpoint* from) {
  from->bytes = sizeof(sockaddr_storage);
  const int fd = accept4(listener.fd(), from->get(), &from->bytes,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return errno;
  *out = Socket(fd);
  return 0;
}

void PrepareStream(const Socket& socket, int64_t timeout_ms) {
  SetOption(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  const int64_t ms = std::clamp<int64_t>(timeout_ms, 1000, 3600 * 1000);
  SetOption(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(ms));
  // Where nothing is sent, as in a greeting that waits for its answer, only
  // keep-alive notices that the other host is gone.
  const int seconds = static_cast<int>(std::max<int64_t>(1, ms / 3000));
  SetOption(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

bool BoundQueue(const Socket& socket, bool bounded) {
  tcp_info info{};
  socklen_t bytes = sizeof(info);
  if (getsockopt(socket.fd(), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
      bytes < offsetof(tcp_info, tcpi_delivery_rate) + 8) {
    return bounded;
  }
  if (!bounded && info.tcpi_rtt < uint64_t{info.tcpi_min_rtt} + kQueueUs) {
    return false;
  }
  const uint64_t needed =
      kQueueBytes + info.tcpi_delivery_rate *
                        (uint64_t{info.tcpi_min_rtt} + kQueueUs) / 1000000;
  if (!bounded && needed > kMostBytes) return false;
  SetOption(socket, SOL_SOCKET, SO_SNDBUF,
            static_cast<int>(std::min(needed, kMostBytes)));
  return true;
}

std::string ErrorText(int error) {
  std::string text = std::generic_category().message(error);
  if (text.size() > 1 && std::islower(static_cast<unsigned char>(text[1]))) {
    text[0] =
        static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  }
  return text;
}

}  // namespace byteps

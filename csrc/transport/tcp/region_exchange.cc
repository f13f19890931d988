#include "csrc/transport/tcp/region_exchange.h"

#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <utility>

#include "csrc/base/log.h"
#include "csrc/wire/bytes.h"

namespace byteps {
namespace {

constexpr size_t kMaxAddressBytes = sizeof(sockaddr_un::sun_path);

}  // namespace

std::vector<uint8_t> Encode(const ShareOffer& offer) {
  ByteWriter writer;
  writer.Text(offer.host);
  writer.Text(offer.address);
  writer.Raw(offer.ticket.data(), offer.ticket.size());
  return writer.Take();
}

Result<ShareOffer> DecodeShareOffer(const uint8_t* body, size_t bytes) {
  ByteReader reader(body, bytes);
  ShareOffer offer;
  if (!reader.Text(&offer.host) || !reader.Text(&offer.address) ||
      !reader.Raw(offer.ticket.data(), offer.ticket.size()) ||
      !reader.finished() || offer.address.empty() ||
      offer.address.size() > kMaxAddressBytes || offer.address[0] != '\0') {
    return InvalidArgument("an offer of shared memory that cannot be read");
  }
  return offer;
}

std::string HostId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  struct stat network{};
  if (!std::getline(file, boot) || stat("/proc/self/ns/net", &network) != 0) {
    return std::string();
  }
  return boot + "/" + std::to_string(network.st_dev) + "/" +
         std::to_string(network.st_ino) + "/" + std::to_string(geteuid());
}

RegionExchange::RegionExchange(std::shared_ptr<SharedRegion> region,
                               Poller* poller, Taker take)
    : region_(std::move(region)), take_(std::move(take)) {
  if (region_ == nullptr) return;
  host_ = HostId();
  Socket socket(
      ::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socklen_t bytes = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  // Bound to nothing but a family, the kernel chooses a free abstract address.
  const bool good =
      !host_.empty() && socket.valid() &&
      setsockopt(socket.fd(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0 &&
      bind(socket.fd(), generic, sizeof(sa_family_t)) == 0 &&
      getsockname(socket.fd(), generic, &bytes) == 0 &&
      bytes > offsetof(sockaddr_un, sun_path) &&
      poller->Add(socket, EPOLLIN, this) == 0;
  if (!good) {
    LogDebug("no shared memory here: it cannot be passed to other processes");
    return;
  }
  address_.assign(address.sun_path, bytes - offsetof(sockaddr_un, sun_path));
  socket_ = std::move(socket);
}

bool RegionExchange::MakeOffer(ShareOffer* offer) const {
  offer->host = host_;
  offer->address = address_;
  return getrandom(offer->ticket.data(), offer->ticket.size(), 0) ==
         static_cast<ssize_t>(offer->ticket.size());
}

int RegionExchange::Show(const ShareOffer& offer) const {
  if (offer.host != host_) return EXDEV;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, offer.address.data(), offer.address.size());
  Ticket ticket = offer.ticket;
  iovec text{ticket.data(), ticket.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_name = &address;
  message.msg_namelen = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) +
                                               offer.address.size());
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = region_->fd();
  std::memcpy(CMSG_DATA(part), &fd, sizeof(fd));
  return sendmsg(socket_.fd(), &message, MSG_NOSIGNAL) < 0 ? errno : 0;
}

void RegionExchange::Ready(uint32_t) {
  for (;;) {
    Ticket ticket;
    iovec text{ticket.data(), ticket.size()};
    alignas(cmsghdr) char
        control[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(ucred))];
    msghdr message{};
    message.msg_iov = &text;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t got = recvmsg(socket_.fd(), &message, MSG_CMSG_CLOEXEC);
    if (got < 0) {
      if (errno == EINTR) continue;
      return;
    }
    int fd = -1;
    ucred sender{};
    sender.uid = static_cast<uid_t>(-1);
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
         part = CMSG_NXTHDR(&message, part)) {
      if (part->cmsg_level != SOL_SOCKET) continue;
      if (part->cmsg_type == SCM_CREDENTIALS &&
          part->cmsg_len == CMSG_LEN(sizeof(sender))) {
        std::memcpy(&sender, CMSG_DATA(part), sizeof(sender));
      } else if (part->cmsg_type == SCM_RIGHTS) {
        // There may be more than one; there is room for two beside none.
        const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; ++i) {
          if (fd >= 0) close(fd);
          std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
        }
      }
    }
    if (fd < 0) continue;
    if (got == static_cast<ssize_t>(ticket.size()) && sender.uid == geteuid()) {
      take_(ticket, fd);
    } else {
      close(fd);
    }
  }
}

}  // namespace byteps

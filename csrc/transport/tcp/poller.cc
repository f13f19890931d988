#include "csrc/transport/tcp/poller.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace byteps {

Poller::Poller()
    : epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!epoll_.valid() || !wake_.valid() || Add(wake_, EPOLLIN, nullptr) != 0) {
    status_ =
        ResourceExhausted("cannot wait for connections: " + ErrorText(errno));
  }
}

int Poller::Add(const Socket& socket, uint32_t events, Source* source) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = source;
  return epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, socket.fd(), &event) == 0
             ? 0
             : errno;
}

void Poller::Modify(const Socket& socket, uint32_t events, Source* source) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = source;
  (void)epoll_ctl(epoll_.fd(), EPOLL_CTL_MOD, socket.fd(), &event);
}

void Poller::Remove(const Socket& socket) {
  (void)epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, socket.fd(), nullptr);
}

void Poller::Wake() {
  const uint64_t one = 1;
  // Full means that a wake-up is pending already.
  const ssize_t written = write(wake_.fd(), &one, sizeof(one));
  (void)written;
}

void Poller::Wait(int64_t timeout_ms) {
  epoll_event events[64];
  const int timeout =
      timeout_ms < 0 ? -1
                     : static_cast<int>(std::min<int64_t>(timeout_ms, INT_MAX));
  const int count = epoll_wait(epoll_.fd(), events, 64, timeout);
  for (int i = 0; i < count; ++i) {
    auto* source = static_cast<Source*>(events[i].data.ptr);
    if (source != nullptr) {
      source->Ready(events[i].events);
      continue;
    }
    uint64_t wakes = 0;
    const ssize_t got = read(wake_.fd(), &wakes, sizeof(wakes));
    (void)got;
  }
}

}  // namespace byteps

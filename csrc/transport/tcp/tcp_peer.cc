#include "csrc/transport/tcp/tcp_peer.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "csrc/base/clock.h"

namespace byteps {
namespace {

// Pieces for one system call: several small messages go out together.
constexpr int kMaxPieces = 64;

}  // namespace

TcpPeer::TcpPeer(Transport* transport, ProcessName name, std::string address)
    : Peer(transport, name, ToString(name) + " (" + address + ")"),
      address_(std::move(address)) {}

std::string TcpPeer::progress() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return progress_;
}

void TcpPeer::set_progress(std::string text) {
  std::lock_guard<std::mutex> lock(mutex_);
  progress_ = std::move(text);
}

void TcpPeer::Open(int fd, int epoll_fd, void* epoll_data) {
  std::lock_guard<std::mutex> lock(mutex_);
  fd_ = fd;
  epoll_fd_ = epoll_fd;
  epoll_data_ = epoll_data;
  said_ms_.store(NowMs(), std::memory_order_relaxed);
  progress_.clear();
}

void TcpPeer::Send(const Header& header, const void* payload,
                   StatusCallback sent) {
  std::vector<StatusCallback> completed;
  Status failure;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (fd_ < 0) {
      failure = shut_.ok() ? Unavailable(label() + " is not connected") : shut_;
    } else {
      queue_.emplace_back();
      Message& message = queue_.back();
      Encode(header, message.header);
      message.payload = static_cast<const uint8_t*>(payload);
      message.payload_bytes = header.payload_bytes;
      message.sent = std::move(sent);
      if (!watched_) WriteLocked(&completed);
    }
  }
  if (!failure.ok()) return sent(failure);
  for (StatusCallback& callback : completed) callback(OkStatus());
}

void TcpPeer::Flush() {
  std::vector<StatusCallback> completed;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (fd_ >= 0) WriteLocked(&completed);
  }
  for (StatusCallback& callback : completed) callback(OkStatus());
}

void TcpPeer::WriteLocked(std::vector<StatusCallback>* completed) {
  while (!queue_.empty()) {
    iovec pieces[kMaxPieces];
    int count = 0;
    for (Message& message : queue_) {
      if (count + 2 > kMaxPieces) break;
      size_t skip = message.done;
      if (skip < Header::kBytes) {
        pieces[count++] = {message.header + skip, Header::kBytes - skip};
        skip = 0;
      } else {
        skip -= Header::kBytes;
      }
      if (message.payload_bytes > skip) {
        pieces[count++] = {const_cast<uint8_t*>(message.payload) + skip,
                           message.payload_bytes - skip};
      }
    }
    msghdr batch = {};
    batch.msg_iov = pieces;
    batch.msg_iovlen = count;
    ssize_t written = sendmsg(fd_, &batch, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        WatchLocked(true);
      } else {
        // Reading says the same, and there the peer is given up.
        shutdown(fd_, SHUT_RDWR);
        WatchLocked(false);
      }
      return;
    }
    said_ms_.store(NowMs(), std::memory_order_relaxed);
    while (written > 0) {
      Message& front = queue_.front();
      const size_t step =
          std::min<size_t>(written, front.size() - front.done);
      front.done += step;
      written -= static_cast<ssize_t>(step);
      if (front.done < front.size()) break;
      completed->push_back(std::move(front.sent));
      queue_.pop_front();
    }
  }
  WatchLocked(false);
}

void TcpPeer::WatchLocked(bool writable) {
  if (watched_ == writable) return;
  watched_ = writable;
  epoll_event event = {};
  event.events = EPOLLIN | (writable ? EPOLLOUT : 0u);
  event.data.ptr = epoll_data_;
  epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd_, &event);
}

void TcpPeer::Shut(const Status& why) {
  std::deque<Message> unsent;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    fd_ = -1;
    watched_ = false;
    shut_ = why;
    unsent.swap(queue_);
  }
  for (Message& message : unsent) message.sent(why);
}

bool TcpPeer::HasUnsent() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return !queue_.empty();
}

}  // namespace byteps

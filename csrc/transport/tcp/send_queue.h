// The messages that wait for their turn on one connection, in order: a ring
// that keeps its memory, so that a steady flow allocates nothing.
//
// Not thread-safe; its connection's mutex guards it.
#ifndef BYTEPS_TRANSPORT_TCP_SEND_QUEUE_H_
#define BYTEPS_TRANSPORT_TCP_SEND_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/wire/header.h"

namespace byteps {

struct QueuedSend {
  uint8_t header[Header::kBytes];
  const uint8_t* payload = nullptr;
  uint64_t payload_bytes = 0;
  uint64_t written = 0;  // of header and payload together
  StatusCallback sent;

  uint64_t left() const { return Header::kBytes + payload_bytes - written; }
};

class SendQueue {
 public:
  bool empty() const { return count_ == 0; }
  size_t size() const { return count_; }
  QueuedSend& at(size_t i) { return ring_[(first_ + i) & (ring_.size() - 1)]; }

  // The new last one, to be filled in.
  QueuedSend& PushBack() {
    if (count_ == ring_.size()) Grow();
    return at(count_++);
  }

  StatusCallback PopFront() {
    StatusCallback sent = std::exchange(at(0).sent, nullptr);
    first_ = (first_ + 1) & (ring_.size() - 1);
    --count_;
    return sent;
  }

 private:
  void Grow() {
    std::vector<QueuedSend> larger(ring_.size() * 2);
    for (size_t i = 0; i < count_; ++i) larger[i] = std::move(at(i));
    ring_ = std::move(larger);
    first_ = 0;
  }

  std::vector<QueuedSend> ring_ =
      std::vector<QueuedSend>(16);  // a power of two
  size_t first_ = 0;
  size_t count_ = 0;
};

}  // namespace byteps

#endif  // BYTEPS_TRANSPORT_TCP_SEND_QUEUE_H_

// Decides from the clock alone whether a peer still lives and when it must be
// told that we do. Pure; owned by one connection, called by one thread.
#ifndef BYTEPS_TRANSPORT_LIVENESS_H_
#define BYTEPS_TRANSPORT_LIVENESS_H_

#include <algorithm>
#include <cstdint>

namespace byteps {

class Liveness {
 public:
  enum class Verdict { kFine, kPing, kLost };

  Liveness(int64_t timeout_ms, int64_t now_ms)
      : timeout_ms_(timeout_ms), heard_ms_(now_ms), checked_ms_(now_ms) {}

  // How often Check is to be called.
  static int64_t IntervalMs(int64_t timeout_ms) {
    return std::max<int64_t>(1, timeout_ms / 8);
  }

  // Any byte came, be it a part of a message.
  void Heard(int64_t now_ms) { heard_ms_ = now_ms; }

  int64_t SilenceMs(int64_t now_ms) const { return now_ms - heard_ms_; }

  // `sent_ms` is when this process last gave something to the peer.
  Verdict Check(int64_t now_ms, int64_t sent_ms) {
    // Time in which this process did not run (stopped, suspended, no CPU) says
    // nothing about the peer: what it sent meanwhile is still to be read.
    const int64_t gap = now_ms - checked_ms_;
    if (gap > timeout_ms_ / 2) heard_ms_ = std::min(now_ms, heard_ms_ + gap);
    checked_ms_ = now_ms;
    if (now_ms - heard_ms_ >= timeout_ms_) return Verdict::kLost;
    if (now_ms - sent_ms >= timeout_ms_ / 4) return Verdict::kPing;
    return Verdict::kFine;
  }

 private:
  const int64_t timeout_ms_;
  int64_t heard_ms_;
  int64_t checked_ms_;
};

}  // namespace byteps

#endif  // BYTEPS_TRANSPORT_LIVENESS_H_

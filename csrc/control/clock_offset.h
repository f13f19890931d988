// How far the coordinator's clock is ahead of this process's, from a few
// questions and answers. The quickest counts: its answer was given at half of
// the time that it took, give or take that half.
//
// A state machine without I/O, clock or thread.
#ifndef BYTEPS_CONTROL_CLOCK_OFFSET_H_
#define BYTEPS_CONTROL_CLOCK_OFFSET_H_

#include <cstdint>

namespace byteps {

class ClockOffset {
 public:
  // `asked_ns` and `heard_ns` on this process's clock, `answered_ns` on the
  // coordinator's.
  void Add(int64_t asked_ns, int64_t answered_ns, int64_t heard_ns) {
    const int64_t took_ns = heard_ns - asked_ns;
    if (samples_++ > 0 && took_ns / 2 >= error_ns_) return;
    error_ns_ = took_ns / 2;
    offset_ns_ = answered_ns - (asked_ns + error_ns_);
  }

  int samples() const { return samples_; }
  int64_t offset_ns() const { return offset_ns_; }  // to be added
  int64_t error_ns() const { return error_ns_; }

 private:
  int samples_ = 0;
  int64_t offset_ns_ = 0;
  int64_t error_ns_ = 0;
};

}  // namespace byteps

#endif  // BYTEPS_CONTROL_CLOCK_OFFSET_H_

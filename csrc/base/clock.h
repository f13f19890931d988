// Monotonic time. State machines take it as an argument, so tests need no
// waiting.
#ifndef BYTEPS_BASE_CLOCK_H_
#define BYTEPS_BASE_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace byteps {

inline int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace byteps

#endif  // BYTEPS_BASE_CLOCK_H_

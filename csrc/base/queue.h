// A closable FIFO between threads.
//
// Any thread may call any method. After Close() pushes are refused and pops
// drain what is left, then return nothing.
#ifndef BYTEPS_BASE_QUEUE_H_
#define BYTEPS_BASE_QUEUE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "csrc/base/clock.h"

namespace byteps {

template <typename T>
class Queue {
 public:
  // False if the queue is closed; `item` is then dropped.
  bool Push(T item) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (closed_) return false;
      items_.push_back(std::move(item));
    }
    ready_.notify_one();
    return true;
  }

  // Waits until an item is there, the queue is closed and empty, or NowMs()
  // passes `deadline_ms`; the last two give nothing.
  std::optional<T> PopUntil(int64_t deadline_ms) {
    std::unique_lock<std::mutex> lock(mutex_);
    WaitLocked(&lock, deadline_ms);
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  // PopUntil's wait alone.
  void WaitUntil(int64_t deadline_ms) {
    std::unique_lock<std::mutex> lock(mutex_);
    WaitLocked(&lock, deadline_ms);
  }

  bool empty() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return items_.empty();
  }

  void Close() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  // True once closed and drained: nothing will ever be popped again.
  bool finished() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return closed_ && items_.empty();
  }

 private:
  void WaitLocked(std::unique_lock<std::mutex>* lock, int64_t deadline_ms) {
    const std::chrono::steady_clock::time_point deadline{
        std::chrono::milliseconds(deadline_ms)};
    ready_.wait_until(*lock, deadline,
                      [this] { return closed_ || !items_.empty(); });
  }

  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;  // guarded by mutex_
  bool closed_ = false;  // guarded by mutex_
};

}  // namespace byteps

#endif  // BYTEPS_BASE_QUEUE_H_

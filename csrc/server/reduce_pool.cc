#include "csrc/server/reduce_pool.h"

#include <algorithm>
#include <string>
#include <utility>

#include "csrc/base/log.h"

namespace byteps {
namespace {

// With no round open nothing can stall: sleep until there is an event.
constexpr int64_t kIdleMs = int64_t{1} << 40;

int64_t CheckInterval(const Config& config) {
  const int64_t shorter =
      std::min(config.stall_warning_ms, config.stall_limit_ms);
  return std::max<int64_t>(shorter / 4, 10);
}

}  // namespace

ReducePool::ReducePool(const Config& config, BufferPool* pool, Sender send)
    : check_interval_ms_(CheckInterval(config)), send_(std::move(send)) {
  const int threads = std::max(config.reduce_threads, 1);
  for (int i = 0; i < threads; ++i) {
    lanes_.push_back(std::make_unique<Lane>(config, pool, i == 0));
  }
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane* lane = lanes_[i].get();
    lane->thread =
        Thread("bps-reduce-" + std::to_string(i), [this, lane] { Run(lane); });
  }
}

ReducePool::~ReducePool() {
  Close();
  Join();
}

uint32_t ReducePool::ThreadOf(const Key& key) const {
  return static_cast<uint32_t>(KeyHash()(key) % lanes_.size());
}

void ReducePool::Post(const Key& key, Event event) {
  lanes_[ThreadOf(key)]->events.Push(std::move(event));
}

void ReducePool::Do(const Key& key, Event event) {
  Lane* lane = lanes_[ThreadOf(key)].get();
  std::unique_lock<std::mutex> lock(lane->mutex, std::try_to_lock);
  if (!lock.owns_lock() || !lane->events.empty()) {
    if (lock.owns_lock()) lock.unlock();
    lane->events.Push(std::move(event));
    return;
  }
  if (lane->events.finished()) return;
  Outbox out;
  const bool waits = lane->aggregator.has_open_round();
  event(&lane->aggregator, &out);
  // A thread that sleeps for ever has to know that something may stall.
  const bool wake = !waits && lane->aggregator.has_open_round();
  if (out.empty() && !wake) return;
  lane->events.Push([out = std::move(out)](Aggregator*, Outbox* to_send) {
    to_send->insert(to_send->end(), out.begin(), out.end());
  });
}

void ReducePool::PostToAll(const Event& event) {
  for (auto it = lanes_.rbegin(); it != lanes_.rend(); ++it) {
    (*it)->events.Push(event);
  }
}

void ReducePool::Close() {
  for (auto& lane : lanes_) lane->events.Close();
}

void ReducePool::Join() {
  for (auto& lane : lanes_) lane->thread.Join();
}

void ReducePool::Run(Lane* lane) {
  Outbox out;
  int64_t next_check = NowMs() + check_interval_ms_;
  bool waiting = false;
  while (!lane->events.finished()) {
    lane->events.WaitUntil(waiting ? next_check : NowMs() + kIdleMs);
    {
      std::lock_guard<std::mutex> lock(lane->mutex);
      const auto event = lane->events.PopUntil(0);
      if (event) (*event)(&lane->aggregator, &out);
      waiting = lane->aggregator.has_open_round();
      if (waiting && NowMs() >= next_check) {
        for (const auto& text : lane->aggregator.CheckStalls(NowMs(), &out)) {
          LogWarning(text);
        }
      }
    }
    if (NowMs() >= next_check) next_check = NowMs() + check_interval_ms_;
    for (const Outgoing& outgoing : out) send_(outgoing);
    out.clear();
  }
}

}  // namespace byteps

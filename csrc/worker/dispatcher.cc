#include "csrc/worker/dispatcher.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <utility>

#include "csrc/base/clock.h"

namespace byteps {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

}  // namespace

Dispatcher::Dispatcher(const std::vector<uint64_t>& shares,
                       uint64_t credit_bytes, Start start)
    : credit_bytes_(credit_bytes),
      start_(std::move(start)),
      lanes_(shares.size()),
      opener_("bps-dispatch", [this] { OpenWindows(); }) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  const double mean = sum / static_cast<double>(shares.size());
  std::lock_guard<std::mutex> lock(mutex_);
  for (size_t server = 0; server < lanes_.size(); ++server) {
    const auto share = static_cast<double>(shares[server]);
    lanes_[server].window.SetWeight(share / mean);
  }
}

Dispatcher::~Dispatcher() { Close(); }

void Dispatcher::Close() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }
  shut_.notify_one();
  opener_.Join();
}

void Dispatcher::Enqueue(uint32_t server, std::vector<Queued> items) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (Queued& item : items) {
      item.sequence = next_sequence_++;
      lanes_[server].waiting.push(std::move(item));
    }
  }
  Drain(server);
}

void Dispatcher::Sent(uint32_t server, uint64_t bytes) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    lanes_[server].in_flight_bytes -= bytes;
  }
  Drain(server);
}

void Dispatcher::Answered(uint32_t server, uint64_t bytes, int64_t priority,
                          int64_t took_ns) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const int64_t now_ns = NowNs();
    lanes_[server].window.Answered(bytes, priority, took_ns, now_ns);
    if (took_ns > 0) pace_.Answered(bytes, now_ns);
    lanes_[server].load.Answered(took_ns > 0 ? bytes : 0, now_ns);
  }
  Drain(server);
}

std::vector<Load> Dispatcher::loads() {
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t now_ns = NowNs();
  std::vector<Load> loads;
  for (const Lane& lane : lanes_) loads.push_back(lane.load.total(now_ns));
  return loads;
}

void Dispatcher::Drain(uint32_t server) {
  std::unique_lock<std::mutex> lock(mutex_);
  Lane& lane = lanes_[server];
  // Whoever drains already looks again before it stops.
  if (lane.draining) return;
  lane.draining = true;
  while (!lane.waiting.empty()) {
    // A partition larger than the whole credit goes alone.
    const uint64_t bytes = lane.waiting.top().bytes;
    const int64_t priority = lane.waiting.top().priority;
    if (lane.in_flight_bytes > 0 &&
        lane.in_flight_bytes + bytes > credit_bytes_) {
      break;
    }
    const int64_t now_ns = NowNs();
    if (!lane.window.Allows(bytes, priority, now_ns, pace_)) {
      if (lane.window.opens_ns() < opener_wakes_ns_) shut_.notify_one();
      break;
    }
    lane.window.Pushed(bytes, priority, now_ns);
    lane.load.Pushed(now_ns);
    Queued item = lane.waiting.top();
    lane.waiting.pop();
    lane.in_flight_bytes += bytes;
    lock.unlock();
    start_(server, item);
    item = Queued();  // may end the operation: not under the lock
    lock.lock();
  }
  lane.draining = false;
}

void Dispatcher::OpenWindows() {
  std::unique_lock<std::mutex> lock(mutex_);
  int64_t opened_ns = 0;
  while (!closed_) {
    opener_wakes_ns_ = kNever;
    for (const Lane& lane : lanes_) {
      // What was due before has been drained. If it still waits then for
      // credit, or another thread drains, and both go on by themselves.
      const int64_t opens_ns = lane.window.opens_ns();
      if (opens_ns > opened_ns) {
        opener_wakes_ns_ = std::min(opener_wakes_ns_, opens_ns);
      }
    }
    // Nothing changes between the look above and the wait.
    if (opener_wakes_ns_ == kNever) {
      shut_.wait(lock);
    } else {
      shut_.wait_until(lock, std::chrono::steady_clock::time_point(
                                 std::chrono::nanoseconds(opener_wakes_ns_)));
    }
    opened_ns = NowNs();
    for (uint32_t server = 0; server < lanes_.size(); ++server) {
      if (closed_ || lanes_[server].window.opens_ns() > opened_ns) continue;
      lock.unlock();
      Drain(server);
      lock.lock();
    }
  }
}

}  // namespace byteps

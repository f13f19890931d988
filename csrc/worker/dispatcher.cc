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
// What is left of the window of a server that is far ahead.
constexpr double kLeastPart = 0.5;

}  // namespace

Dispatcher::Dispatcher(const std::vector<uint64_t>& shares,
                       uint64_t credit_bytes, Start start)
    : credit_bytes_(credit_bytes),
      start_(std::move(start)),
      lanes_(shares.size()),
      opener_("bps-dispatch", [this] { OpenWindows(); }) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::lock_guard<std::mutex> lock(mutex_);
  for (size_t server = 0; server < lanes_.size(); ++server) {
    Lane& lane = lanes_[server];
    lane.share = static_cast<double>(shares[server]) / sum;
    lane.window.SetWeight(lane.share * static_cast<double>(lanes_.size()));
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
    ++last_turn_;
    for (Queued& item : items) {
      if (item.turn == 0) item.turn = last_turn_;
      item.sequence = next_sequence_++;
      left_bytes_ += item.bytes;
      lanes_[server].left_bytes += item.bytes;
      lanes_[server].waiting.push(std::move(item));
    }
  }
  Drain(server);
}

uint64_t Dispatcher::TakeTurn() {
  std::lock_guard<std::mutex> lock(mutex_);
  return ++last_turn_;
}

void Dispatcher::Sent(uint32_t server, uint64_t bytes) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    lanes_[server].in_flight_bytes -= bytes;
  }
  Drain(server);
}

void Dispatcher::Answered(uint32_t server, uint64_t bytes, int64_t priority,
                          uint64_t place, int64_t took_ns) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const int64_t now_ns = NowNs();
    left_bytes_ -= bytes;
    lanes_[server].left_bytes -= bytes;
    lanes_[server].window.Answered(bytes, priority, place, took_ns, now_ns);
    pace_.Answered(bytes, took_ns <= 0, now_ns);
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

// A server whose part of what is left is smaller than its share is ahead of
// the others, which have the more of the link the less it takes.
double Dispatcher::PartOfWindow(const Lane& lane) const {
  const auto left = static_cast<double>(lane.left_bytes);
  const double expected = lane.share * static_cast<double>(left_bytes_);
  if (left >= expected) return 1;
  const double part = left / expected;
  return std::max(kLeastPart, part * part);
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
    lane.window.SetPace(lane.share * pace_.fastest());
    lane.window.NarrowTo(PartOfWindow(lane));
    if (!lane.window.Allows(bytes, priority, now_ns, pace_)) {
      if (lane.window.opens_ns() < opener_wakes_ns_) shut_.notify_one();
      break;
    }
    Queued item = lane.waiting.top();
    item.place = lane.window.Pushed(bytes, priority, now_ns);
    pace_.Pushed(bytes, now_ns);
    lane.load.Pushed(now_ns);
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

#include "csrc/worker/dispatcher.h"

#include <utility>

namespace byteps {

Dispatcher::Dispatcher(uint32_t num_servers, uint64_t credit_bytes, Start start)
    : credit_bytes_(credit_bytes),
      start_(std::move(start)),
      lanes_(num_servers) {}

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

void Dispatcher::Drain(uint32_t server) {
  std::unique_lock<std::mutex> lock(mutex_);
  Lane& lane = lanes_[server];
  // Whoever drains already looks again before it stops.
  if (lane.draining) return;
  lane.draining = true;
  while (!lane.waiting.empty()) {
    // A partition larger than the whole credit goes alone.
    const uint64_t bytes = lane.waiting.top().bytes;
    if (lane.in_flight_bytes > 0 &&
        lane.in_flight_bytes + bytes > credit_bytes_) {
      break;
    }
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

}  // namespace byteps

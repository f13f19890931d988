#include "csrc/worker/answer_window.h"

#include <algorithm>
#include <utility>

namespace byteps {
namespace {

// Partitions in the window beside what is on its way: at the server, being
// pushed by others, and being answered.
constexpr uint64_t kPartitions = 3;
constexpr uint64_t kLeastBytes = 96 << 10;
constexpr int64_t kPeriodNs = 10'000'000'000;

}  // namespace

uint64_t AnswerWindow::BytesFor(uint64_t partition_bytes) const {
  const int64_t shortest = std::min(shortest_ns_, shortest_before_ns_);
  uint64_t on_its_way = 0;
  if (shortest != kNever) {
    on_its_way =
        static_cast<uint64_t>(bytes_per_ns_ * static_cast<double>(shortest));
  }
  return on_its_way + std::max(kLeastBytes, kPartitions * partition_bytes);
}

bool AnswerWindow::Allows(uint64_t bytes, int64_t now_ns) {
  if (unanswered_ == 0 || unanswered_ + bytes <= BytesFor(bytes) + opened_by_) {
    return true;
  }
  if (opens_ns_ == kNever) opens_ns_ = now_ns + kPatienceNs;
  if (now_ns < opens_ns_) return false;
  opens_ns_ = kNever;
  opened_by_ = std::max(2 * opened_by_, unanswered_ + bytes - BytesFor(bytes));
  return true;
}

void AnswerWindow::Pushed(uint64_t bytes, int64_t now_ns) {
  if (unanswered_ == 0) BeginTrip(now_ns);
  unanswered_ += bytes;
}

void AnswerWindow::BeginTrip(int64_t now_ns) {
  trip_began_ns_ = now_ns;
  trip_bytes_ = 0;
  trip_ends_at_ = std::max(unanswered_, kLeastBytes);
}

void AnswerWindow::Answered(uint64_t bytes, int64_t took_ns, int64_t now_ns) {
  unanswered_ -= bytes;
  opened_by_ = 0;
  opens_ns_ = kNever;
  if (took_ns <= 0) return;
  if (now_ns >= period_ends_ns_) {
    period_ends_ns_ = now_ns + kPeriodNs;
    shortest_before_ns_ = std::exchange(shortest_ns_, kNever);
  }
  shortest_ns_ = std::min(shortest_ns_, took_ns);
  trip_bytes_ += bytes;
  if (trip_bytes_ < trip_ends_at_ || now_ns <= trip_began_ns_) return;
  const double rate = static_cast<double>(trip_bytes_) /
                      static_cast<double>(now_ns - trip_began_ns_);
  bytes_per_ns_ += (rate - bytes_per_ns_) / (bytes_per_ns_ > 0 ? 4 : 1);
  BeginTrip(now_ns);
}

}  // namespace byteps

#include "csrc/worker/answer_window.h"

#include <algorithm>
#include <utility>

namespace byteps {
namespace {

// Partitions in the window beside what is on its way: at the server, being
// pushed by others, and being answered.
constexpr uint64_t kPartitions = 4;
constexpr uint64_t kLeastBytes = 128 << 10;
// Threads on both ways run this much later than they could.
constexpr int64_t kDelayNs = 2'000'000;
// An opened window closes by one byte for so many that are answered.
constexpr uint64_t kClosing = 20;
// How long a partition waits: so many times as long as its answer alone takes
// at the rate of answers, within bounds.
constexpr double kPatience = 4;
constexpr int64_t kLeastPatienceNs = 20'000'000;
constexpr int64_t kMostPatienceNs = 200'000'000;
constexpr int64_t kPeriodNs = 10'000'000'000;
constexpr int64_t kSampleNs = 100'000'000;
// Answers at less than this part of their fastest pace are few.
constexpr double kFew = 0.7;

}  // namespace

void AnswerPace::Answered(uint64_t bytes, int64_t now_ns) {
  bytes_ += bytes;
  const int64_t took_ns = now_ns - sample_began_ns_;
  if (took_ns < kSampleNs) return;
  if (now_ns >= period_ends_ns_) {
    period_ends_ns_ = now_ns + kPeriodNs;
    fastest_before_ = std::exchange(fastest_, 0);
  }
  fastest_ =
      std::max(fastest_, static_cast<double>(bytes_ - sample_begin_bytes_) /
                             static_cast<double>(took_ns));
  sample_begin_bytes_ = bytes_;
  sample_began_ns_ = now_ns;
}

bool AnswerPace::Keeps(uint64_t bytes, int64_t took_ns) const {
  const double fastest = std::max(fastest_, fastest_before_);
  return static_cast<double>(bytes) >
         kFew * fastest * static_cast<double>(took_ns);
}

uint64_t AnswerWindow::BytesFor(uint64_t partition_bytes) const {
  const int64_t shortest = std::min(shortest_ns_, shortest_before_ns_);
  const auto few =
      static_cast<double>(std::max(kLeastBytes, kPartitions * partition_bytes));
  double bytes = weight_ * few;
  if (shortest != kNever) {
    bytes += bytes_per_ns_ * static_cast<double>(shortest + kDelayNs);
  }
  return static_cast<uint64_t>(bytes);
}

int64_t AnswerWindow::PatienceNs(uint64_t bytes) const {
  if (bytes_per_ns_ <= 0) return kLeastPatienceNs;
  const double usual = static_cast<double>(bytes) / bytes_per_ns_;
  return static_cast<int64_t>(
      std::clamp<double>(kPatience * usual, kLeastPatienceNs, kMostPatienceNs));
}

void AnswerWindow::WaitFrom(uint64_t bytes, int64_t now_ns,
                            const AnswerPace& pace) {
  opens_ns_ = now_ns + PatienceNs(bytes);
  waits_since_ns_ = now_ns;
  answered_then_ = pace.bytes();
}

uint64_t AnswerWindow::UnansweredFrom(int64_t priority) const {
  uint64_t bytes = 0;
  for (auto it = unanswered_by_priority_.lower_bound(priority);
       it != unanswered_by_priority_.end(); ++it) {
    bytes += it->second;
  }
  return bytes;
}

bool AnswerWindow::Allows(uint64_t bytes, int64_t priority, int64_t now_ns,
                          const AnswerPace& pace) {
  const uint64_t unanswered = UnansweredFrom(priority);
  if (unanswered == 0 || unanswered + bytes <= BytesFor(bytes) + opened_by_) {
    // Many small or urgent ones that go first do not make another wait for
    // ever.
    if (bytes >= refused_ && priority <= refused_priority_) opens_ns_ = kNever;
    return true;
  }
  if (opens_ns_ == kNever) WaitFrom(bytes, now_ns, pace);
  refused_ = bytes;
  refused_priority_ = priority;
  if (now_ns < opens_ns_) return false;
  if (pace.Keeps(pace.bytes() - answered_then_, now_ns - waits_since_ns_)) {
    WaitFrom(bytes, now_ns, pace);
    return false;
  }
  opens_ns_ = kNever;
  opened_by_ = std::max(2 * opened_by_, unanswered + bytes - BytesFor(bytes));
  return true;
}

void AnswerWindow::Pushed(uint64_t bytes, int64_t priority, int64_t now_ns) {
  if (unanswered_ == 0) {
    BeginTrip(now_ns);
    // Answers in a flow that never pauses wait behind the window itself: the
    // shortest is forgotten only where the next may be as short.
    if (now_ns >= period_ends_ns_) {
      period_ends_ns_ = now_ns + kPeriodNs;
      shortest_before_ns_ = std::exchange(shortest_ns_, kNever);
    }
  }
  unanswered_ += bytes;
  unanswered_by_priority_[priority] += bytes;
}

void AnswerWindow::BeginTrip(int64_t now_ns) {
  trip_began_ns_ = now_ns;
  trip_bytes_ = 0;
  trip_ends_at_ = std::max(unanswered_, kLeastBytes);
}

void AnswerWindow::Answered(uint64_t bytes, int64_t priority, int64_t took_ns,
                            int64_t now_ns) {
  unanswered_ -= bytes;
  uint64_t& same = unanswered_by_priority_[priority];
  same -= bytes;
  if (same == 0) unanswered_by_priority_.erase(priority);
  opened_by_ -= std::min(opened_by_, bytes / kClosing);
  if (took_ns <= 0) return;
  shortest_ns_ = std::min(shortest_ns_, took_ns);
  trip_bytes_ += bytes;
  if (trip_bytes_ < trip_ends_at_ || now_ns <= trip_began_ns_) return;
  const double rate = static_cast<double>(trip_bytes_) /
                      static_cast<double>(now_ns - trip_began_ns_);
  bytes_per_ns_ += (rate - bytes_per_ns_) / (bytes_per_ns_ > 0 ? 4 : 1);
  BeginTrip(now_ns);
}

}  // namespace byteps

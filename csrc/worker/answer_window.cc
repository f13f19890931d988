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
// What is in the window is answered within this time at the server's part of
// the fastest pace; on a longer path, within so many of its shortest times.
constexpr double kSoonNs = 40'000'000;
constexpr double kSoonTrips = 1.5;
constexpr uint64_t kLeastPartitions = 2;
// How long a partition waits: so many times as long as the answers to all that
// is unanswered take, within bounds.
constexpr double kPatience = 2;
constexpr int64_t kLeastPatienceNs = 20'000'000;
constexpr int64_t kMostPatienceNs = 200'000'000;
constexpr int64_t kPeriodNs = 10'000'000'000;
// How long the answers are counted for their fastest pace, and for a look at
// whether they are few.
constexpr int64_t kSampleNs = 100'000'000;
constexpr int64_t kLookNs = 10'000'000;
// Answers at less than this part of their fastest pace are few.
constexpr double kFew = 0.7;

}  // namespace

void AnswerPace::Pushed(uint64_t bytes, int64_t now_ns) {
  if (unanswered_ == 0) few_since_ns_ = now_ns;
  unanswered_ += bytes;
}

void AnswerPace::Answered(uint64_t bytes, bool given_up, int64_t now_ns) {
  unanswered_ -= bytes;
  if (given_up) return;
  if (sample_began_ns_ == 0) sample_began_ns_ = look_began_ns_ = now_ns;
  look_bytes_ += bytes;
  const int64_t looked_ns = now_ns - look_began_ns_;
  if (looked_ns >= kLookNs) {
    if (static_cast<double>(look_bytes_) >
        kFew * fastest() * static_cast<double>(looked_ns)) {
      few_since_ns_ = now_ns;
    }
    look_bytes_ = 0;
    look_began_ns_ = now_ns;
  }
  sample_bytes_ += bytes;
  const int64_t took_ns = now_ns - sample_began_ns_;
  if (took_ns < kSampleNs) return;
  if (now_ns >= period_ends_ns_) {
    period_ends_ns_ = now_ns + kPeriodNs;
    fastest_before_ = std::exchange(fastest_, 0);
  }
  fastest_ = std::max(fastest_, static_cast<double>(sample_bytes_) /
                                    static_cast<double>(took_ns));
  sample_bytes_ = 0;
  sample_began_ns_ = now_ns;
}

double AnswerPace::TripNs() const {
  const double pace = fastest();
  return pace > 0 ? static_cast<double>(unanswered_) / pace : 0;
}

double AnswerWindow::WholeFor(uint64_t partition_bytes) const {
  const auto few =
      static_cast<double>(std::max(kLeastBytes, kPartitions * partition_bytes));
  double bytes = weight_ * few;
  if (shortest_ns() != kNever) {
    bytes += bytes_per_ns_ * static_cast<double>(shortest_ns() + kDelayNs);
  }
  return std::min(bytes, MostFor(partition_bytes));
}

double AnswerWindow::MostFor(uint64_t partition_bytes) const {
  if (pace_ <= 0 || shortest_ns() == kNever) {
    return std::numeric_limits<double>::max();
  }
  const double soon_ns =
      std::max(kSoonNs, kSoonTrips * static_cast<double>(shortest_ns()));
  return std::max(static_cast<double>(kLeastPartitions * partition_bytes),
                  pace_ * soon_ns);
}

uint64_t AnswerWindow::UnansweredFrom(int64_t priority) const {
  uint64_t bytes = 0;
  for (auto it = by_priority_.lower_bound(priority); it != by_priority_.end();
       ++it) {
    bytes += it->second.pushed - it->second.answered;
  }
  return bytes;
}

uint64_t AnswerWindow::Opened() const {
  return std::max({opened_by_, needed_, needed_before_});
}

bool AnswerWindow::Allows(uint64_t bytes, int64_t priority, int64_t now_ns,
                          const AnswerPace& pace) {
  const uint64_t unanswered = UnansweredFrom(priority);
  if (unanswered == 0 || unanswered + bytes <= BytesFor(bytes) + Opened()) {
    // Many small or urgent ones that go first do not make another wait for
    // ever.
    if (bytes >= refused_ && priority <= refused_priority_) opens_ns_ = kNever;
    return true;
  }
  if (opens_ns_ == kNever) waits_since_ns_ = now_ns;
  refused_ = bytes;
  refused_priority_ = priority;
  const auto patience_ns = static_cast<int64_t>(std::clamp<double>(
      kPatience * pace.TripNs(), kLeastPatienceNs, kMostPatienceNs));
  opens_ns_ = std::max(waits_since_ns_, pace.few_since_ns()) + patience_ns;
  if (now_ns < opens_ns_) return false;
  opens_ns_ = kNever;
  opened_by_ = std::max(2 * Opened(), unanswered + bytes - BytesFor(bytes));
  return true;
}

uint64_t AnswerWindow::Pushed(uint64_t bytes, int64_t priority,
                              int64_t now_ns) {
  if (unanswered_ == 0) {
    BeginTrip(now_ns);
    // Answers in a flow that never pauses wait behind the window itself: the
    // shortest is forgotten only where the next may be as short.
    if (now_ns >= period_ends_ns_) {
      period_ends_ns_ = now_ns + kPeriodNs;
      shortest_before_ns_ = std::exchange(shortest_ns_, kNever);
      needed_before_ = std::exchange(needed_, 0);
    }
  }
  unanswered_ += bytes;
  uint64_t& pushed = by_priority_[priority].pushed;
  return std::exchange(pushed, pushed + bytes);
}

void AnswerWindow::BeginTrip(int64_t now_ns) {
  trip_began_ns_ = now_ns;
  trip_bytes_ = 0;
  trip_ends_at_ = std::max(unanswered_, kLeastBytes);
}

void AnswerWindow::Answered(uint64_t bytes, int64_t priority, uint64_t place,
                            int64_t took_ns, int64_t now_ns) {
  Pushes& same = by_priority_[priority];
  // Of those that were pushed before it, at least so much is not answered.
  const uint64_t passed = place - std::min(place, same.answered);
  same.answered += bytes;
  if (same.answered == same.pushed) by_priority_.erase(priority);
  unanswered_ -= bytes;
  opened_by_ -= std::min(opened_by_, bytes);
  if (took_ns <= 0) return;
  const auto window = static_cast<uint64_t>(WholeFor(bytes));
  if (passed + bytes > window) {
    needed_ = std::max(needed_, passed + bytes - window);
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

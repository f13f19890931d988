// How far a worker's pushes may be ahead of one server's answers.
//
// A server answers when all workers have pushed, so what one of them pushes far
// beyond the others only takes bandwidth from theirs at the server's port, and
// from its own pushes to other servers. The window is what the connection
// carries in the shortest time that an answer takes, and a few partitions.
//
// It never stops a worker: workers that push in different orders would wait for
// each other for ever. Where a partition has waited for long the window opens,
// by more each time, and closes slowly, with many answers: an order that
// differs once, since a layer's gradient came late to somebody, lasts.
//
// A state machine without lock or clock; its dispatcher has both.
#ifndef BYTEPS_WORKER_ANSWER_WINDOW_H_
#define BYTEPS_WORKER_ANSWER_WINDOW_H_

#include <cstdint>
#include <limits>

namespace byteps {

class AnswerWindow {
 public:
  // Whether a partition of `bytes` may go now. One always may.
  bool Allows(uint64_t bytes, int64_t now_ns);
  void Pushed(uint64_t bytes, int64_t now_ns);
  // `took_ns` from push to answer; 0: given up, nothing is to be learnt.
  void Answered(uint64_t bytes, int64_t took_ns, int64_t now_ns);

  // When Allows opens the window; the end of time if nothing waits for that.
  int64_t opens_ns() const { return opens_ns_; }
  uint64_t BytesFor(uint64_t partition_bytes) const;

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  int64_t PatienceNs(uint64_t bytes) const;
  void BeginTrip(int64_t now_ns);

  uint64_t unanswered_ = 0;
  int64_t opens_ns_ = kNever;
  uint64_t refused_ = 0;    // the bytes that wait until then
  uint64_t opened_by_ = 0;  // beyond the window

  // The rate of answers, by round trips: the pushes that are unanswered at the
  // beginning of one are answered at its end.
  double bytes_per_ns_ = 0;
  int64_t trip_began_ns_ = 0;
  uint64_t trip_bytes_ = 0;
  uint64_t trip_ends_at_ = 0;

  // The shortest of this period and of the one before.
  int64_t shortest_ns_ = kNever;
  int64_t shortest_before_ns_ = kNever;
  int64_t period_ends_ns_ = 0;
};

}  // namespace byteps

#endif  // BYTEPS_WORKER_ANSWER_WINDOW_H_

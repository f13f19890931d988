// How far a worker's pushes may be ahead of one server's answers.
//
// A server answers when all workers have pushed, so what one of them pushes far
// beyond the others only takes bandwidth from theirs at the server's port, and
// from its own pushes to other servers. The window is what the connection
// carries in the shortest time that an answer takes, and a few partitions; more
// of them for a server that sums more, so that all are done at one time. It is
// never more than is answered soon.
//
// It never stops a worker: workers that push in different orders would wait for
// each other for ever. Where a partition has waited for long, and few answers
// come from other servers either, the window opens, by more each time. Answers
// close it again, but for what their own order shows to be needed: an order
// that differs once will do so again.
//
// State machines without lock or clock; their dispatcher has both.
#ifndef BYTEPS_WORKER_ANSWER_WINDOW_H_
#define BYTEPS_WORKER_ANSWER_WINDOW_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>

namespace byteps {

// How fast a worker's answers come, those of all servers together.
class AnswerPace {
 public:
  void Pushed(uint64_t bytes, int64_t now_ns);
  // With `given_up` nothing is to be learnt.
  void Answered(uint64_t bytes, bool given_up, int64_t now_ns);

  // Since when they have been few, for what there has been of late.
  int64_t few_since_ns() const { return few_since_ns_; }
  // How long the answers to all that is unanswered take at their fastest pace.
  // 0 where nothing is known.
  double TripNs() const;
  // The fastest of late, in bytes a nanosecond. 0 where nothing is known.
  double fastest() const { return std::max(fastest_, fastest_before_); }

 private:
  uint64_t unanswered_ = 0;
  // Of this period and of the one before, from samples.
  double fastest_ = 0;
  double fastest_before_ = 0;
  int64_t period_ends_ns_ = 0;
  int64_t sample_began_ns_ = 0;  // 0: nothing has been answered yet
  uint64_t sample_bytes_ = 0;
  int64_t look_began_ns_ = 0;
  uint64_t look_bytes_ = 0;
  int64_t few_since_ns_ = 0;
};

class AnswerWindow {
 public:
  // How much the server sums, 1 being the mean of all servers.
  void SetWeight(double weight) { weight_ = weight; }
  // This server's part of the fastest pace of all answers, in bytes a
  // nanosecond: what it has in its window is answered soon at that. 0: unknown.
  void SetPace(double bytes_per_ns) { pace_ = bytes_per_ns; }
  // Leaves this part of the window, at most 1.
  void NarrowTo(double part) { part_ = part; }

  // Whether a partition of `bytes` may go now. One always may.
  bool Allows(uint64_t bytes, int64_t priority, int64_t now_ns,
              const AnswerPace& pace);
  // Returns its place in the order of pushes.
  uint64_t Pushed(uint64_t bytes, int64_t priority, int64_t now_ns);
  // `took_ns` from push to answer; 0: given up, nothing is to be learnt.
  void Answered(uint64_t bytes, int64_t priority, uint64_t place,
                int64_t took_ns, int64_t now_ns);

  // When Allows opens the window; the end of time if nothing waits for that.
  int64_t opens_ns() const { return opens_ns_; }
  uint64_t BytesFor(uint64_t partition_bytes) const {
    return static_cast<uint64_t>(part_ * WholeFor(partition_bytes));
  }

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  // Counts that begin anew where all is answered.
  struct Pushes {
    uint64_t pushed = 0;
    uint64_t answered = 0;
  };

  double WholeFor(uint64_t partition_bytes) const;
  double MostFor(uint64_t partition_bytes) const;
  uint64_t UnansweredFrom(int64_t priority) const;
  uint64_t Opened() const;
  void BeginTrip(int64_t now_ns);

  int64_t shortest_ns() const {
    return std::min(shortest_ns_, shortest_before_ns_);
  }

  double weight_ = 1;
  double pace_ = 0;
  double part_ = 1;
  uint64_t unanswered_ = 0;
  std::map<int64_t, Pushes> by_priority_;
  int64_t opens_ns_ = kNever;
  int64_t waits_since_ns_ = 0;
  uint64_t refused_ = 0;  // the bytes that wait until then
  int64_t refused_priority_ = 0;
  // Beyond the window: what waited for long, and what orders that differ need,
  // of this period and of the one before.
  uint64_t opened_by_ = 0;
  uint64_t needed_ = 0;
  uint64_t needed_before_ = 0;

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

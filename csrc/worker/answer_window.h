// How far a worker's pushes may be ahead of one server's answers.
//
// A server answers when all workers have pushed, so what one of them pushes far
// beyond the others only takes bandwidth from theirs at the server's port, and
// from its own pushes to other servers. The window is what the connection
// carries in the shortest time that an answer takes, and a few partitions; more
// of them for a server that sums more, so that all are done at one time.
//
// It never stops a worker: workers that push in different orders would wait for
// each other for ever. Where a partition has waited for long, and few answers
// come from other servers either, the window opens, by more each time, and
// closes slowly, with many answers: an order that differs once, since a layer's
// gradient came late to somebody, lasts.
//
// State machines without lock or clock; their dispatcher has both.
#ifndef BYTEPS_WORKER_ANSWER_WINDOW_H_
#define BYTEPS_WORKER_ANSWER_WINDOW_H_

#include <cstdint>
#include <limits>
#include <map>

namespace byteps {

// How fast a worker's answers come, those of all servers together.
class AnswerPace {
 public:
  void Answered(uint64_t bytes, int64_t now_ns);
  uint64_t bytes() const { return bytes_; }
  // Whether answers with `bytes` in `took_ns` are a good part of what there has
  // been of late.
  bool Keeps(uint64_t bytes, int64_t took_ns) const;

 private:
  uint64_t bytes_ = 0;
  // The fastest of this period and of the one before, from samples.
  double fastest_ = 0;  // bytes a nanosecond
  double fastest_before_ = 0;
  int64_t period_ends_ns_ = 0;
  uint64_t sample_begin_bytes_ = 0;
  int64_t sample_began_ns_ = 0;
};

class AnswerWindow {
 public:
  // How much the server sums, 1 being the mean of all servers.
  void SetWeight(double weight) { weight_ = weight; }

  // Whether a partition of `bytes` may go now. One always may.
  bool Allows(uint64_t bytes, int64_t priority, int64_t now_ns,
              const AnswerPace& pace);
  void Pushed(uint64_t bytes, int64_t priority, int64_t now_ns);
  // `took_ns` from push to answer; 0: given up, nothing is to be learnt.
  void Answered(uint64_t bytes, int64_t priority, int64_t took_ns,
                int64_t now_ns);

  // When Allows opens the window; the end of time if nothing waits for that.
  int64_t opens_ns() const { return opens_ns_; }
  uint64_t BytesFor(uint64_t partition_bytes) const;

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  int64_t PatienceNs(uint64_t bytes) const;
  void WaitFrom(uint64_t bytes, int64_t now_ns, const AnswerPace& pace);
  uint64_t UnansweredFrom(int64_t priority) const;
  void BeginTrip(int64_t now_ns);

  double weight_ = 1;
  uint64_t unanswered_ = 0;
  std::map<int64_t, uint64_t> unanswered_by_priority_;
  int64_t opens_ns_ = kNever;
  int64_t waits_since_ns_ = 0;
  uint64_t answered_then_ = 0;  // by all servers
  uint64_t refused_ = 0;        // the bytes that wait until then
  int64_t refused_priority_ = 0;
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

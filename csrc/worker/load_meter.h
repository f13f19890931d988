// Whether servers answer as fast as their shares assume, and which shares would
// fit better. Only numbers come in; the worker client has the lock and the
// clock.
//
// A server is busy while pushes to it are unanswered. Where all are busy for
// equally long no other shares are better, whatever the workers do meanwhile.
// So a server that is busy for longer than the others loses load, and one that
// lost some gets it back when it is busy for shorter. One odd period changes
// nothing, and nothing changes where little is pushed: time then goes into
// messages, not bytes.
#ifndef BYTEPS_WORKER_LOAD_METER_H_
#define BYTEPS_WORKER_LOAD_METER_H_

#include <cstdint>
#include <vector>

namespace byteps {

// What a server has had to do so far.
struct Load {
  int64_t busy_ns = 0;
  uint64_t bytes = 0;  // answered
};

// The load of one server, from its pushes and answers.
class LoadCount {
 public:
  void Pushed(int64_t now_ns) {
    if (unanswered_++ == 0) busy_since_ns_ = now_ns;
  }
  void Answered(uint64_t bytes, int64_t now_ns) {
    total_.bytes += bytes;
    if (--unanswered_ == 0) total_.busy_ns += now_ns - busy_since_ns_;
  }
  Load total(int64_t now_ns) const {
    Load load = total_;
    if (unanswered_ > 0) load.busy_ns += now_ns - busy_since_ns_;
    return load;
  }

 private:
  Load total_;
  uint64_t unanswered_ = 0;
  int64_t busy_since_ns_ = 0;
};

class LoadMeter {
 public:
  // A period has at least so many rounds of a tensor, so that it begins and
  // ends at about the same place of a step; the caller counts them.
  static constexpr uint32_t kRounds = 4;
  // And one server is busy for at least so long in it.
  static constexpr int64_t kLeastBusyNs = 1'000'000'000;
  // It counts if some server answers so much in a second of being busy.
  static constexpr uint64_t kLeastBytes = 64 << 10;

  // `planned` by server. `own` is the server in this process, which no network
  // is in the way to: it is not compared and keeps its share. Without one:
  // anything that is no server.
  LoadMeter(std::vector<uint64_t> planned, uint32_t own);

  // Other shares for the servers, or nothing if these are good, or it is too
  // early to say. `totals` by server, since the start.
  std::vector<uint64_t> Measure(const std::vector<Load>& totals);
  // The shares are now these: what was measured before no longer counts.
  void Changed(std::vector<uint64_t> shares);

 private:
  bool Uneven(const std::vector<double>& busy) const;
  std::vector<uint64_t> Better(const std::vector<double>& busy) const;

  const std::vector<uint64_t> planned_;
  std::vector<bool> compared_;  // by server
  std::vector<uint64_t> shares_;
  std::vector<Load> begin_;  // totals when this period began
  std::vector<double> sum_;  // of the uneven periods in a row, busy
  int uneven_ = 0;           // how many these are
  bool restart_ = true;      // a period begins with the next totals
};

}  // namespace byteps

#endif  // BYTEPS_WORKER_LOAD_METER_H_

// What this process does when, in a file that chrome://tracing and Perfetto
// show and `bps timeline` reads (docs/timeline.md).
//
// Owned by the runtime; client and server have a pointer to it, which may be
// null. Any thread may call any method. Add takes a short lock, allocates
// nothing and never waits for the disk: a thread of its own writes, at least
// once a second, so that a process that is killed leaves all but its last
// second. If the disk does not keep up spans are dropped, and counted in the
// file. A file that cannot be written ends the recording with a warning.
#ifndef BYTEPS_BASE_TIMELINE_H_
#define BYTEPS_BASE_TIMELINE_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/config.h"
#include "csrc/base/status.h"
#include "csrc/base/thread.h"

namespace byteps {

struct Span {
  enum class What : uint8_t {
    // On a worker; `peer` is the server.
    kTensor,  // the whole operation
    kQueue,   // called → handed to the transport
    kPush,    // handed to the transport → has left this process
    kWait,    // has left → the result begins to arrive
    kPull,    // the result begins to arrive → is in the output
    // On a server; `peer` is the worker, and the reduce thread for the two of
    // the sum.
    kReceive,   // begins to arrive → is here
    kSumQueue,  // is here → its reduce thread takes it
    kSum,
    kReply,  // handed to the transport → has left this process
  };

  What what = What::kTensor;
  uint32_t peer = 0;
  uint64_t tensor = 0;
  uint64_t round = 0;
  uint64_t bytes = 0;
  uint32_t partition = 0;
  uint32_t rank = 0;  // whose contribution or result, on a server
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

class Timeline {
 public:
  // Two buffers of `capacity` spans: by default 7 MB each, of which untouched
  // pages take none. The writer is woken when one is half full.
  explicit Timeline(const Config& config, size_t capacity = size_t{1} << 17);
  ~Timeline();  // stops

  // Spans are kept from now on, and written once the job is known.
  // FailedPrecondition if that is so already, InvalidArgument if `directory`
  // cannot be made or written to.
  Status Start(const std::string& directory);
  // Returns when all is in the file. Nothing happens if nothing is recorded.
  void Stop();

  // When the job began, on the clock of the coordinator's wall: the same on all
  // processes, and another for each job. The first one stands.
  void SetJob(int64_t wall_ns);
  // The coordinator's clock minus this process's, and how far it may be off.
  void SetClock(int64_t offset_ns, int64_t error_ns);

  // NowNs(), or 0 while nothing is recorded.
  int64_t Now() const {
    return recording_.load(std::memory_order_relaxed) ? NowNs() : 0;
  }
  // A span that began while nothing was recorded is dropped.
  void Add(const Span& span);
  // How the tensor is called in the file: its label, if it has one.
  void Name(uint64_t tensor, const std::string& name);
  // A better name for the tensor `name`, also while nothing is recorded; and
  // for name/…, with the same end.
  void Label(const std::string& name, const std::string& label);

 private:
  class File;
  struct Clock {
    int64_t offset_ns;
    int64_t error_ns;
  };
  using Names = std::vector<std::pair<uint64_t, std::string>>;

  void Write(const std::string& directory);
  // What the tensor is called, and the label; mutex_ held.
  std::string LabelLocked(const std::string& name) const;

  const ProcessName self_;
  const ProcessName coordinator_;
  const size_t capacity_;
  std::atomic<bool> recording_{false};

  std::mutex life_mutex_;  // held by the one that starts or stops
  Thread writer_;          // guarded by life_mutex_

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;       // guarded by mutex_
  int64_t job_wall_ns_ = 0;     // guarded by mutex_
  int64_t since_ns_ = 0;        // guarded by mutex_
  std::vector<Span> spans_;     // at most capacity_; guarded by mutex_
  uint64_t dropped_ = 0;        // guarded by mutex_
  Names fresh_names_;           // not in the file yet; guarded by mutex_
  std::optional<Clock> clock_;  // the same
  std::unordered_set<uint64_t> named_;                   // guarded by mutex_
  std::unordered_map<std::string, std::string> labels_;  // guarded by mutex_
};

// The time if `timeline`, which may be null, records; else 0.
inline int64_t NowOn(const Timeline* timeline) {
  return timeline == nullptr ? 0 : timeline->Now();
}

}  // namespace byteps

#endif  // BYTEPS_BASE_TIMELINE_H_

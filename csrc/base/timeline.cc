#include "csrc/base/timeline.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string_view>
#include <system_error>

#include "csrc/base/log.h"

namespace byteps {
namespace {

constexpr std::chrono::seconds kFlushInterval(1);
// Written at once: text that is still in the cache.
constexpr size_t kWriteBytes = 128 << 10;
// Servers' process ids in the file stand behind all workers'.
constexpr int kServerPid = 1000000;

struct Kind {
  const char* name;
  const char* title;  // of its row; the peer's index follows
  bool waits;         // stands still: shown apart from what moves
};

constexpr size_t kKinds = 9;

const Kind& KindOf(Span::What what) {
  static constexpr Kind kAll[kKinds] = {
      {"tensor", "tensors", true},
      {"queue", "queue for server ", true},
      {"push", "push to server ", false},
      {"wait", "wait for server ", true},
      {"pull", "pull from server ", false},
      {"receive", "receive from worker ", false},
      {"sum queue", "queue for reduce thread ", true},
      {"sum", "reduce thread ", false},
      {"reply", "reply to worker ", false},
  };
  return kAll[static_cast<size_t>(what)];
}

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", c);
      out += code;
    } else {
      out += c;
    }
  }
  return out;
}

// No number and no text between two of them is longer.
constexpr size_t kMaxNumber = 24;

char* Put(char* out, uint64_t value, int base = 10) {
  return std::to_chars(out, out + kMaxNumber, value, base).ptr;
}

char* Put(char* out, std::string_view text) {
  std::memcpy(out, text.data(), text.size());
  return out + text.size();
}

// The format's unit.
char* PutMicroseconds(char* out, int64_t ns) {
  out = Put(out, static_cast<uint64_t>(ns / 1000));
  const int64_t rest = ns % 1000;
  *out++ = '.';
  *out++ = static_cast<char>('0' + rest / 100);
  *out++ = static_cast<char>('0' + rest / 10 % 10);
  *out++ = static_cast<char>('0' + rest % 10);
  return out;
}

// Rows on which spans do not overlap. Of a thousand partitions that wait in
// line each needs one, so the first free one is found in a tree.
class Rows {
 public:
  // The first row that is free at `begin_ns`, or a new one; busy until
  // `end_ns`.
  size_t Take(int64_t begin_ns, int64_t end_ns) {
    size_t node = 1;
    if (ends_[1] > begin_ns) {
      if (count_ == leaves_) Grow();
      node = leaves_ + count_++;
    }
    while (node < leaves_) node = 2 * node + (ends_[2 * node] > begin_ns);
    const size_t row = node - leaves_;
    ends_[node] = end_ns;
    while ((node /= 2) > 0) {
      ends_[node] = std::min(ends_[2 * node], ends_[2 * node + 1]);
    }
    return row;
  }

 private:
  static constexpr int64_t kNoRow = std::numeric_limits<int64_t>::max();

  void Grow() {
    std::vector<int64_t> ends(4 * leaves_, kNoRow);
    std::copy_n(ends_.begin() + leaves_, leaves_, ends.begin() + 2 * leaves_);
    leaves_ *= 2;
    ends_ = std::move(ends);
    for (size_t node = leaves_; --node > 0;) {
      ends_[node] = std::min(ends_[2 * node], ends_[2 * node + 1]);
    }
  }

  size_t count_ = 0;
  size_t leaves_ = 1;  // a power of two
  // A node's children are 2n and 2n + 1; it has the earlier end of theirs. The
  // leaves are the rows.
  std::vector<int64_t> ends_ = {kNoRow, kNoRow};
};

// "20261202-173015-123456", in UTC.
std::string JobName(int64_t wall_ns) {
  const std::time_t seconds = wall_ns / 1000000000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char date[32], name[48];
  std::strftime(date, sizeof(date), "%Y%m%d-%H%M%S", &utc);
  std::snprintf(name, sizeof(name), "%s-%06d", date,
                static_cast<int>(wall_ns % 1000000000 / 1000));
  return name;
}

// Processes with the same one have the same clock.
std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace

// The open file; used by the writer's thread only.
class Timeline::File {
 public:
  File(const ProcessName& self, const ProcessName& coordinator)
      : self_(self), coordinator_(coordinator) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }

  bool is_open() const { return fd_ >= 0; }
  size_t waiting_bytes() const { return text_.size(); }

  Status Open(const std::string& directory, int64_t job_wall_ns) {
    const std::string job = JobName(job_wall_ns);
    const std::string folder = directory + "/" + job;
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    const std::string role = self_.role == Role::kWorker ? "worker" : "server";
    const std::string stem =
        folder + "/" + role + "-" + std::to_string(self_.index);
    // A recording that was stopped and started again has a further file.
    for (int count = 1; fd_ < 0; ++count) {
      const std::string path =
          stem + (count == 1 ? "" : "." + std::to_string(count)) + ".json";
      fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
      if (fd_ < 0 && errno != EEXIST) return Problem(path, errno);
    }
    path_ = stem;
    text_ = "[\n";
    Meta("tf_byteps", pid(false), 0,
         "\"job\":\"" + job + "\",\"process\":\"" + ToString(self_) +
             "\",\"coordinator\":\"" + ToString(coordinator_) +
             "\",\"boot\":\"" + Escaped(BootId()) + "\"");
    for (const bool waits : {false, true}) {
      Meta("process_name", pid(waits), 0,
           "\"name\":\"" + ToString(self_) + (waits ? " in line\"" : "\""));
      Meta("process_sort_index", pid(waits), 0,
           "\"sort_index\":" + std::to_string(pid(waits)));
    }
    return OkStatus();
  }

  void SetClock(const Clock& clock) {
    Meta("tf_byteps_clock", pid(false), 0,
         "\"offset_ns\":" + std::to_string(clock.offset_ns) +
             ",\"error_ns\":" + std::to_string(clock.error_ns));
  }

  void Name(uint64_t tensor, const std::string& name) {
    TensorTexts& texts = texts_[tensor];
    texts = TensorTexts();
    texts.name = Escaped(name);
  }

  void Add(const Span& span) {
    const int tid = RowOf(span);
    TensorTexts& texts = texts_[span.tensor];
    std::string& head = texts.heads[static_cast<size_t>(span.what)];
    if (head.empty()) Describe(span, &texts);
    // Ten numbers and the texts between them.
    const size_t most = head.size() + texts.tensor.size() + 20 * kMaxNumber;
    if (room_.size() < most) room_.resize(most);
    char* out = room_.data();
    out = Put(out, head);
    out = Put(out, static_cast<uint64_t>(tid));
    out = Put(out, ",\"ts\":");
    out = PutMicroseconds(out, span.begin_ns);
    out = Put(out, ",\"dur\":");
    out = PutMicroseconds(out, span.end_ns - span.begin_ns);
    out = Put(out, texts.tensor);
    out = Put(out, span.partition);
    out = Put(out, ",\"round\":");
    out = Put(out, span.round);
    out = Put(out, ",\"bytes\":");
    out = Put(out, span.bytes);
    out = Put(out, ",\"peer\":");
    out = Put(out, span.peer);
    out = Put(out, ",\"rank\":");
    out = Put(out, span.rank);
    out = Put(out, "}},\n");
    text_.append(room_.data(), static_cast<size_t>(out - room_.data()));
  }

  void Finish(uint64_t dropped) {
    Meta("tf_byteps_end", pid(false), 0,
         "\"dropped\":" + std::to_string(dropped));
    text_.resize(text_.size() - 2);  // no comma behind the last one
    text_ += "\n]\n";
  }

  Status Flush() {
    size_t written = 0;
    while (written < text_.size()) {
      const ssize_t n =
          write(fd_, text_.data() + written, text_.size() - written);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Problem(path_, errno);
      written += static_cast<size_t>(n);
    }
    text_.clear();
    return OkStatus();
  }

  static Status Problem(const std::string& path, int error) {
    return InvalidArgument("timeline: cannot write to " + path + ": " +
                           std::strerror(error));
  }

 private:
  int pid(bool waits) const {
    return (self_.role == Role::kWorker ? 0 : kServerPid) +
           2 * static_cast<int>(self_.index) + (waits ? 2 : 1);
  }

  void Meta(const char* name, int pid, int tid, const std::string& args) {
    text_ += std::string("{\"ph\":\"M\",\"name\":\"") + name +
             "\",\"pid\":" + std::to_string(pid) +
             ",\"tid\":" + std::to_string(tid) + ",\"args\":{" + args + "}},\n";
  }

  // What is the same for all spans of a tensor.
  struct TensorTexts {
    std::string name;
    std::string heads[kKinds];  // by Span::What: up to the row
    std::string tensor;
  };

  void Describe(const Span& span, TensorTexts* texts) {
    const Kind& kind = KindOf(span.what);
    texts->heads[static_cast<size_t>(span.what)] =
        std::string("{\"ph\":\"X\",\"cat\":\"") + kind.name + "\",\"name\":\"" +
        texts->name + "\",\"pid\":" + std::to_string(pid(kind.waits)) +
        ",\"tid\":";
    char id[kMaxNumber];
    texts->tensor = ",\"args\":{\"tensor\":\"" +
                    std::string(id, Put(id, span.tensor, 16)) +
                    "\",\"partition\":";
  }

  // The viewers show what overlaps well on rows of its own only: a free one of
  // those that this kind and peer have, or a new one.
  int RowOf(const Span& span) {
    auto& of_kind = rows_[static_cast<size_t>(span.what)];
    if (span.peer >= of_kind.size()) of_kind.resize(span.peer + 1);
    PeerRows& rows = of_kind[span.peer];
    const size_t row = rows.rows.Take(span.begin_ns, span.end_ns);
    if (row < rows.tids.size()) return rows.tids[row];
    const Kind& kind = KindOf(span.what);
    std::string title = kind.title;
    if (span.what != Span::What::kTensor) title += std::to_string(span.peer);
    if (row > 0) title += " (" + std::to_string(row + 1) + ")";
    const int tid = next_tid_++;
    const uint64_t order = (static_cast<uint64_t>(span.what) << 26) +
                           (uint64_t{span.peer} << 12) + row;
    Meta("thread_name", pid(kind.waits), tid, "\"name\":\"" + title + "\"");
    Meta("thread_sort_index", pid(kind.waits), tid,
         "\"sort_index\":" + std::to_string(order));
    rows.tids.push_back(tid);
    return tid;
  }

  struct PeerRows {
    Rows rows;
    std::vector<int> tids;
  };
  const ProcessName self_;
  const ProcessName coordinator_;
  int fd_ = -1;
  std::string path_;
  std::string text_;        // not in the file yet
  std::vector<char> room_;  // for a span's line
  std::unordered_map<uint64_t, TensorTexts> texts_;
  std::vector<PeerRows> rows_[kKinds];  // by Span::What, then by peer
  int next_tid_ = 1;
};

Timeline::Timeline(const Config& config, size_t capacity)
    : self_(config.self),
      coordinator_(config.coordinator()),
      capacity_(capacity) {}

Timeline::~Timeline() { Stop(); }

Status Timeline::Start(const std::string& directory) {
  std::lock_guard<std::mutex> life(life_mutex_);
  if (recording_.load()) {
    return FailedPrecondition("timeline: this process records one already");
  }
  writer_.Join();  // of a recording that failed
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return File::Problem(directory, error.value());
  if (access(directory.c_str(), W_OK | X_OK) != 0) {
    return File::Problem(directory, errno);
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = false;
    since_ns_ = NowNs();
    spans_.clear();
    spans_.reserve(capacity_);
    dropped_ = 0;
    named_.clear();
    fresh_names_.clear();
    clock_.reset();
  }
  recording_.store(true);
  writer_ = Thread("bps-timeline", [this, directory] { Write(directory); });
  return OkStatus();
}

void Timeline::Stop() {
  std::lock_guard<std::mutex> life(life_mutex_);
  recording_.store(false);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  writer_.Join();
}

void Timeline::SetJob(int64_t wall_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (job_wall_ns_ == 0) job_wall_ns_ = wall_ns;
}

void Timeline::SetClock(int64_t offset_ns, int64_t error_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  clock_ = Clock{offset_ns, error_ns};
}

void Timeline::Add(const Span& span) {
  if (!recording_.load(std::memory_order_relaxed)) return;
  bool half_full = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (span.begin_ns < since_ns_) return;
    if (spans_.size() == capacity_) {
      ++dropped_;
      return;
    }
    spans_.push_back(span);
    half_full = spans_.size() == capacity_ / 2;
  }
  if (half_full) changed_.notify_all();
}

void Timeline::Name(uint64_t tensor, const std::string& name) {
  if (!recording_.load(std::memory_order_relaxed)) return;
  std::lock_guard<std::mutex> lock(mutex_);
  if (!named_.insert(tensor).second) return;
  fresh_names_.emplace_back(tensor, LabelLocked(name));
}

void Timeline::Label(const std::string& name, const std::string& label) {
  std::lock_guard<std::mutex> lock(mutex_);
  labels_[name] = label;
}

std::string Timeline::LabelLocked(const std::string& name) const {
  for (size_t end = name.size(); end != std::string::npos && end > 0;
       end = name.rfind('/', end - 1)) {
    const auto label = labels_.find(name.substr(0, end));
    if (label != labels_.end()) return label->second + name.substr(end);
  }
  return name;
}

void Timeline::Write(const std::string& directory) {
  File file(self_, coordinator_);
  std::vector<Span> spans;
  spans.reserve(capacity_);
  for (bool last = false; !last;) {
    Names names;
    std::optional<Clock> clock;
    uint64_t dropped = 0;
    int64_t job_wall_ns = 0;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait_for(lock, kFlushInterval, [this] {
        return stopping_ || spans_.size() >= capacity_ / 2;
      });
      last = stopping_;
      job_wall_ns = job_wall_ns_;
      if (job_wall_ns != 0) {
        spans.swap(spans_);
        names.swap(fresh_names_);
        clock.swap(clock_);
        dropped = dropped_;
      }
    }
    if (job_wall_ns == 0) continue;  // there is no place for it yet
    Status status = OkStatus();
    if (!file.is_open()) status = file.Open(directory, job_wall_ns);
    if (status.ok()) {
      for (const auto& name : names) file.Name(name.first, name.second);
      if (clock) file.SetClock(*clock);
      for (const Span& span : spans) {
        file.Add(span);
        if (file.waiting_bytes() < kWriteBytes) continue;
        status = file.Flush();
        if (!status.ok()) break;
      }
    }
    if (status.ok()) {
      if (last) file.Finish(dropped);
      status = file.Flush();
    }
    if (!status.ok()) {
      LogWarning(status.message() + "; nothing more is recorded");
      recording_.store(false);
      return;
    }
    spans.clear();
  }
}

}  // namespace byteps

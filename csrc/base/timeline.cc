#include "csrc/base/timeline.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>
#include <system_error>
#include <tuple>

#include "csrc/base/log.h"

namespace byteps {
namespace {

constexpr std::chrono::seconds kFlushInterval(1);
// Servers' process ids in the file stand behind all workers'.
constexpr int kServerPid = 1000000;

struct Kind {
  const char* name;
  const char* title;  // of its row; the peer's index follows
  bool waits;         // stands still: shown apart from what moves
};

const Kind& KindOf(Span::What what) {
  static constexpr Kind kKinds[] = {
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
  return kKinds[static_cast<size_t>(what)];
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

void Append(std::string* out, uint64_t value, int base = 10) {
  char text[24];
  const auto end = std::to_chars(text, text + sizeof(text), value, base);
  out->append(text, end.ptr);
}

// The format's unit.
void AppendMicroseconds(std::string* out, int64_t ns) {
  Append(out, static_cast<uint64_t>(ns / 1000));
  const int64_t rest = ns % 1000;
  *out += '.';
  *out += static_cast<char>('0' + rest / 100);
  *out += static_cast<char>('0' + rest / 10 % 10);
  *out += static_cast<char>('0' + rest % 10);
}

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
    names_[tensor] = Escaped(name);
  }

  void Add(const Span& span) {
    const Kind& kind = KindOf(span.what);
    const int tid = RowOf(span);
    text_ += "{\"ph\":\"X\",\"cat\":\"";
    text_ += kind.name;
    text_ += "\",\"name\":\"";
    const auto name = names_.find(span.tensor);
    if (name != names_.end()) text_ += name->second;
    text_ += "\",\"pid\":";
    Append(&text_, static_cast<uint64_t>(pid(kind.waits)));
    text_ += ",\"tid\":";
    Append(&text_, static_cast<uint64_t>(tid));
    text_ += ",\"ts\":";
    AppendMicroseconds(&text_, span.begin_ns);
    text_ += ",\"dur\":";
    AppendMicroseconds(&text_, span.end_ns - span.begin_ns);
    text_ += ",\"args\":{\"tensor\":\"";
    Append(&text_, span.tensor, 16);
    text_ += "\",\"partition\":";
    Append(&text_, span.partition);
    text_ += ",\"round\":";
    Append(&text_, span.round);
    text_ += ",\"bytes\":";
    Append(&text_, span.bytes);
    text_ += ",\"peer\":";
    Append(&text_, span.peer);
    text_ += ",\"rank\":";
    Append(&text_, span.rank);
    text_ += "}},\n";
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

  // The viewers show what overlaps well on rows of its own only: a free one of
  // those that this kind and peer have, or a new one.
  int RowOf(const Span& span) {
    auto& rows = rows_[{span.what, span.peer}];
    for (Row& row : rows) {
      if (row.end_ns > span.begin_ns) continue;
      row.end_ns = span.end_ns;
      return row.tid;
    }
    const Kind& kind = KindOf(span.what);
    std::string title = kind.title;
    if (span.what != Span::What::kTensor) title += std::to_string(span.peer);
    if (!rows.empty()) title += " (" + std::to_string(rows.size() + 1) + ")";
    const int tid = next_tid_++;
    const uint64_t order = (static_cast<uint64_t>(span.what) << 26) +
                           (uint64_t{span.peer} << 12) + rows.size();
    Meta("thread_name", pid(kind.waits), tid, "\"name\":\"" + title + "\"");
    Meta("thread_sort_index", pid(kind.waits), tid,
         "\"sort_index\":" + std::to_string(order));
    rows.push_back({tid, span.end_ns});
    return tid;
  }

  struct Row {
    int tid;
    int64_t end_ns;
  };
  const ProcessName self_;
  const ProcessName coordinator_;
  int fd_ = -1;
  std::string path_;
  std::string text_;  // not in the file yet
  std::unordered_map<uint64_t, std::string> names_;
  std::map<std::pair<Span::What, uint32_t>, std::vector<Row>> rows_;
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
      for (const Span& span : spans) file.Add(span);
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

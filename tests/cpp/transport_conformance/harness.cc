#include "tests/cpp/transport_conformance/harness.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>

#include "csrc/base/clock.h"

namespace byteps {
namespace testing {
namespace {

std::chrono::steady_clock::time_point In(int64_t ms) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
}

}  // namespace

uint16_t FreePort() {
  static std::mt19937 random(static_cast<unsigned>(getpid()) * 7919u +
                             std::random_device{}());
  for (;;) {
    const auto port = static_cast<uint16_t>(15000 + random() % 15000);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    const bool free =
        bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    close(fd);
    if (free) return port;
  }
}

std::vector<uint8_t> PatternOf(uint32_t sender, uint64_t index,
                               uint64_t bytes) {
  std::vector<uint8_t> out(bytes);
  for (uint64_t at = 0; at < bytes; at += 8) {
    uint64_t x = (sender + 1) * 0x9E3779B97F4A7C15ull +
                 (index + 1) * 0xBF58476D1CE4E5B9ull + at / 8;
    x ^= x >> 29;
    x *= 0x94D049BB133111EBull;
    std::memcpy(out.data() + at, &x, std::min<uint64_t>(8, bytes - at));
  }
  return out;
}

// ---- RecordingReceiver

void RecordingReceiver::Check(bool good, const char* what) const {
  if (!good) ADD_FAILURE() << what;
  if (sealed_.load()) ADD_FAILURE() << "called after Close";
}

void RecordingReceiver::Joined(Peer* peer) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Check(std::count(joined_.begin(), joined_.end(), peer) == 0,
          "joined twice");
    Check(lost_.count(peer) == 0, "joined after its loss");
    joined_.push_back(peer);
  }
  if (on_joined) on_joined(peer);
  changed_.notify_all();
}

Landing RecordingReceiver::Land(Peer* peer, const Header& header) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Check(std::count(joined_.begin(), joined_.end(), peer) == 1,
          "a message before Joined");
    Check(lost_.count(peer) == 0, "a message after Lost");
  }
  Landing landing;
  if (accepts && !accepts(peer, header)) {
    landing.accept = false;
    return landing;
  }
  auto* payload = new std::vector<uint8_t>();
  landing.context = payload;
  if (discards && discards(peer, header)) return landing;
  payload->resize(header.payload_bytes);
  landing.data = payload->data();
  return landing;
}

void RecordingReceiver::Arrived(Peer* peer, const Header& header,
                                const Landing& landing) {
  std::unique_ptr<std::vector<uint8_t>> payload(
      static_cast<std::vector<uint8_t>*>(landing.context));
  Message message{peer, header, std::move(*payload)};
  if (on_arrived) on_arrived(peer, message);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Check(lost_.count(peer) == 0, "arrived after Lost");
    ++message_count_;
    if (keep_messages) messages_.push_back(std::move(message));
  }
  changed_.notify_all();
}

void RecordingReceiver::Abandoned(Peer* peer, const Header&,
                                  const Landing& landing) {
  delete static_cast<std::vector<uint8_t>*>(landing.context);
  std::lock_guard<std::mutex> lock(mutex_);
  Check(lost_.count(peer) == 0, "abandoned after Lost");
  ++abandoned_;
}

void RecordingReceiver::Lost(Peer* peer, const Status& why) {
  if (on_lost) on_lost(peer, why);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Check(!why.ok(), "lost without a reason");
    Check(lost_.count(peer) == 0 && refused_.count(peer) == 0,
          "a second end of one peer");
    lost_.emplace(peer, why);
  }
  changed_.notify_all();
}

void RecordingReceiver::Refused(Peer* peer, const Status& why) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Check(!why.ok(), "refused without a reason");
    Check(lost_.count(peer) == 0 && refused_.count(peer) == 0,
          "a second end of one peer");
    refused_.emplace(peer, why);
  }
  changed_.notify_all();
}

bool RecordingReceiver::Wait(std::unique_lock<std::mutex>* lock,
                             const std::function<bool()>& done) {
  return changed_.wait_until(*lock, In(kPatienceMs), done);
}

Peer* RecordingReceiver::WaitJoined(const ProcessName& name) {
  Peer* found = nullptr;
  std::unique_lock<std::mutex> lock(mutex_);
  Wait(&lock, [&] {
    for (Peer* peer : joined_) {
      if (peer->name() == name && lost_.count(peer) == 0) found = peer;
    }
    return found != nullptr;
  });
  return found;
}

bool RecordingReceiver::WaitMessages(size_t count) {
  std::unique_lock<std::mutex> lock(mutex_);
  return Wait(&lock, [&] { return message_count_ >= count; });
}

bool RecordingReceiver::WaitLost(Peer* peer, Status* why) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!Wait(&lock, [&] { return lost_.count(peer) > 0; })) return false;
  *why = lost_.at(peer);
  return true;
}

bool RecordingReceiver::WaitRefused(Peer* peer, Status* why) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!Wait(&lock, [&] { return refused_.count(peer) > 0; })) return false;
  *why = refused_.at(peer);
  return true;
}

bool RecordingReceiver::NobodyLostFor(int64_t ms) {
  std::unique_lock<std::mutex> lock(mutex_);
  return !changed_.wait_until(lock, In(ms), [&] { return !lost_.empty(); });
}

std::vector<Message> RecordingReceiver::messages() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return messages_;
}

size_t RecordingReceiver::message_count() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return message_count_;
}

size_t RecordingReceiver::abandoned() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return abandoned_;
}

size_t RecordingReceiver::lost_count() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return lost_.size();
}

// ---- Gate

void Gate::Open() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
  }
  opened_.notify_all();
}

void Gate::Pass() {
  std::unique_lock<std::mutex> lock(mutex_);
  opened_.wait_until(lock, In(kPatienceMs), [this] { return open_; });
}

// ---- Completions

struct Completions::State {
  mutable std::mutex mutex;
  std::condition_variable changed;
  size_t given = 0, ok = 0, failed = 0;
  Status last_error;
};

struct Completions::Token {
  explicit Token(std::shared_ptr<State> s) : state(std::move(s)) {}
  ~Token() {
    if (calls.load() == 0) ADD_FAILURE() << "a callback was dropped uncalled";
  }
  std::shared_ptr<State> state;
  std::atomic<int> calls{0};
};

Completions::Completions() : state_(std::make_shared<State>()) {}

Completions::~Completions() {
  if (!WaitAll()) ADD_FAILURE() << "a callback was not called";
}

StatusCallback Completions::Next() { return Next(nullptr); }

StatusCallback Completions::Next(StatusCallback then) {
  auto all = state_;
  {
    std::lock_guard<std::mutex> lock(all->mutex);
    ++all->given;
  }
  auto token = std::make_shared<Token>(all);
  return [token, then = std::move(then)](Status status) {
    if (token->calls.fetch_add(1) != 0) {
      ADD_FAILURE() << "a callback was called twice";
      return;
    }
    if (then) then(status);
    State& all = *token->state;
    {
      std::lock_guard<std::mutex> lock(all.mutex);
      if (status.ok()) {
        ++all.ok;
      } else {
        ++all.failed;
        all.last_error = status;
      }
    }
    all.changed.notify_all();
  };
}

bool Completions::WaitAll() {
  auto all = state_;
  std::unique_lock<std::mutex> lock(all->mutex);
  return all->changed.wait_until(lock, In(kPatienceMs), [&] {
    return all->ok + all->failed >= all->given;
  });
}

size_t Completions::given() const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->given;
}
size_t Completions::ok() const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->ok;
}
size_t Completions::failed() const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->failed;
}
Status Completions::last_error() const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->last_error;
}

// ----

Config WorkerConfig(const std::vector<std::string>& workers, uint32_t index) {
  Config config;
  config.self = {Role::kWorker, index};
  config.workers = workers;
  config.job_token = "the token of this test's job";
  config.cluster_digest = "digest";
  config.failure_timeout_ms = 30000;
  return config;
}

Header DataHeader(uint64_t index, uint64_t bytes) {
  Header header;
  header.kind = Kind::kPush;
  header.membership_epoch = 1;
  header.key = {0x0123456789abcdef, static_cast<uint32_t>(index)};
  header.round = index;
  header.payload_bytes = bytes;
  return header;
}

}  // namespace testing
}  // namespace byteps

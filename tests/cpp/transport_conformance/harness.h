// What the transport tests share: processes of a small cluster, all within the
// test's own process, and a receiver that records what it is told.
#ifndef BYTEPS_TESTS_TRANSPORT_CONFORMANCE_HARNESS_H_
#define BYTEPS_TESTS_TRANSPORT_CONFORMANCE_HARNESS_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/base/config.h"
#include "csrc/transport/transport.h"

namespace byteps {
namespace testing {

// Longer than anything takes on a busy machine; only failures wait for it.
constexpr int64_t kPatienceMs = 60000;

// A port of this host on which nobody listens, outside the range from which
// the kernel takes the ports of outgoing connections.
uint16_t FreePort();

// The payload of message `index` from `sender`: its bytes depend on both and on
// their position, so that no mix-up goes unseen.
std::vector<uint8_t> PatternOf(uint32_t sender, uint64_t index, uint64_t bytes);

struct Message {
  Peer* peer;
  Header header;
  std::vector<uint8_t> payload;
};

// Keeps all it is told. Fails the test when a rule of the contract is broken:
// events for a peer that has not joined or is lost already, a second end,
// anything after Seal.
class RecordingReceiver final : public Receiver {
 public:
  // Called in addition, on the transport's thread. Set before the start.
  std::function<void(Peer*)> on_joined;
  std::function<bool(Peer*, const Header&)> accepts;
  std::function<bool(Peer*, const Header&)> discards;
  std::function<void(Peer*, const Message&)> on_arrived;
  std::function<void(Peer*, const Status&)> on_lost;
  bool keep_messages = true;

  void Joined(Peer* peer) override;
  Landing Land(Peer* peer, const Header& header) override;
  void Arrived(Peer* peer, const Header& header,
               const Landing& landing) override;
  void Abandoned(Peer* peer, const Header& header,
                 const Landing& landing) override;
  void Lost(Peer* peer, const Status& why) override;
  void Refused(Peer* peer, const Status& why) override;

  // From now on any call is a failure: Close has returned.
  void Seal() { sealed_.store(true); }

  // The peer of that name that is joined now; null after kPatienceMs.
  Peer* WaitJoined(const ProcessName& name);
  bool WaitMessages(size_t count);
  bool WaitLost(Peer* peer, Status* why);
  bool WaitRefused(Peer* peer, Status* why);
  // Waits for `ms` and is true if nobody was lost meanwhile.
  bool NobodyLostFor(int64_t ms);

  std::vector<Message> messages() const;
  size_t message_count() const;
  size_t abandoned() const;
  size_t lost_count() const;

 private:
  bool Wait(std::unique_lock<std::mutex>* lock,
            const std::function<bool()>& done);
  void Check(bool good, const char* what) const;

  std::atomic<bool> sealed_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Peer*> joined_;
  std::map<Peer*, Status> lost_;
  std::map<Peer*, Status> refused_;
  std::vector<Message> messages_;
  size_t message_count_ = 0;
  size_t abandoned_ = 0;
};

// Holds up whoever passes until it is open.
class Gate {
 public:
  ~Gate() { Open(); }
  void Open();
  void Pass();

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

// Counts completions. A callback made by it that is called twice, or destroyed
// uncalled, fails the test.
class Completions {
 public:
  Completions();
  ~Completions();
  StatusCallback Next();
  StatusCallback Next(StatusCallback then);
  bool WaitAll();  // until all given out have been called
  size_t given() const;
  size_t ok() const;
  size_t failed() const;
  Status last_error() const;

 private:
  struct State;
  struct Token;
  // Shared with the callbacks, which may outlive a test that failed.
  const std::shared_ptr<State> state_;
};

// A cluster of colocated workers.
Config WorkerConfig(const std::vector<std::string>& workers, uint32_t index);

Header DataHeader(uint64_t index, uint64_t bytes);

}  // namespace testing
}  // namespace byteps

#endif  // BYTEPS_TESTS_TRANSPORT_CONFORMANCE_HARNESS_H_

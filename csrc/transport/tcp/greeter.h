// Brings connections to the point where both ends have proved who they are:
// listens, accepts, dials until somebody answers, and greets. What comes from
// strangers ends here.
//
// Owned by the transport. Listen is for any thread, the rest for the
// transport's.
#ifndef BYTEPS_TRANSPORT_TCP_GREETER_H_
#define BYTEPS_TRANSPORT_TCP_GREETER_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/base/config.h"
#include "csrc/base/status.h"
#include "csrc/transport/tcp/poller.h"
#include "csrc/transport/tcp/resolver.h"
#include "csrc/transport/tcp/socket.h"
#include "csrc/transport/tcp/stranger_log.h"
#include "csrc/wire/handshake.h"

namespace byteps {

class TcpPeer;

// What a greeter needs from the transport. All on the transport's thread but
// Post.
class GreeterOwner {
 public:
  virtual ~GreeterOwner() = default;
  // Runs `command` on the transport's thread. Any thread.
  virtual void Post(std::function<void()> command) = 0;

  enum class Admission { kWelcome, kConnectedAlready, kLater };
  // May a process of that name, which is genuine, connect now?
  virtual Admission MayConnect(const ProcessName& name) = 0;
  // `dialed` is null if the other end dialed. `rest` came behind the greeting.
  // 0, or errno if the connection is of no use; `socket` is then gone.
  virtual int Connected(TcpPeer* dialed, const ProcessName& name, Socket socket,
                        const std::vector<uint8_t>& rest) = 0;
  // Dialing it has ended for good.
  virtual void Refused(TcpPeer* dialed, const std::string& why) = 0;
};

class Greeter {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  Greeter(const Config& config, Poller* poller, GreeterOwner* owner);
  ~Greeter();

  Status Listen(const std::string& address);
  void Dial(TcpPeer* peer, const std::string& address);

  // When RunTimers is to be called.
  int64_t due_ms() const { return due_ms_; }
  void RunTimers(int64_t now);
  // After each wait of the poller: no event names what was dropped any more.
  void Tidy();

  // Ends all of it; returns the peers that were being dialed.
  std::vector<TcpPeer*> Close();
  // Waits for the look-up that is going on. Any thread.
  void CloseResolver() { resolver_.Close(); }

 private:
  struct Listener;
  struct Opening;
  struct Dialing;

  void AcceptFrom(const Listener& listener);
  void PauseAccepting(int error);
  void MakeRoomForStranger();

  void StartAttempt(Dialing* dialing);
  void TryNextEndpoint(Dialing* dialing);
  void AttemptFailed(Dialing* dialing, const std::string& why);
  void RefusedFor(Dialing* dialing, const std::string& why);
  void Forget(Dialing* dialing);

  void OpeningReady(Opening* opening);
  void BeginGreeting(Opening* opening);
  void ReceiveGreeting(Opening* opening);
  void DecideOn(Opening* opening);
  void Establish(Opening* opening);
  void Linger(Opening* opening);
  void Warn(const std::string& sentence);
  void DropStranger(Opening* opening, const std::string& why);
  void Drop(Opening* opening);
  void CallBy(int64_t due_ms);

  const Config config_;
  Poller* const poller_;
  GreeterOwner* const owner_;
  Resolver resolver_;

  std::mutex mutex_;
  std::vector<std::unique_ptr<Listener>> listeners_;  // guarded by mutex_
  bool closed_ = false;                               // guarded by mutex_

  // The transport's thread only.
  std::vector<std::unique_ptr<Dialing>> dialing_;
  std::vector<std::unique_ptr<Opening>> openings_;  // oldest first
  std::vector<std::unique_ptr<Opening>> dropped_;
  StrangerLog stranger_log_;
  int64_t accept_again_ms_ = kNever;
  int64_t due_ms_ = kNever;
};

}  // namespace byteps

#endif  // BYTEPS_TRANSPORT_TCP_GREETER_H_

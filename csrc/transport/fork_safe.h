// Keeps a forked child's hands off its parent's transport.
//
// The child has a copy of the memory as some thread happened to leave it, none
// of the threads, and the parent's sockets. So there Send completes with an
// error, Close does nothing, and the destructor leaks the copy. `Inner` has the
// methods of Transport, and gives `self` as the transport of its peers.
#ifndef BYTEPS_TRANSPORT_FORK_SAFE_H_
#define BYTEPS_TRANSPORT_FORK_SAFE_H_

#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "csrc/transport/transport.h"

namespace byteps {

template <typename Inner>
class ForkSafe final : public Transport {
 public:
  // `args` go to Inner(Transport* self, args...).
  template <typename... Args>
  explicit ForkSafe(Args&&... args)
      : pid_(getpid()),
        inner_(std::make_unique<Inner>(this, std::forward<Args>(args)...)) {}

  ~ForkSafe() override {
    if (InChild()) (void)inner_.release();
  }

  Status Listen(const std::string& address) override {
    return InChild() ? Refusal() : inner_->Listen(address);
  }

  Peer* Dial(const ProcessName& name, const std::string& address) override {
    return inner_->Dial(name, address);
  }

  void Send(Peer* peer, const Header& header, const void* payload,
            StatusCallback sent) override {
    if (!InChild()) {
      inner_->Send(peer, header, payload, std::move(sent));
    } else if (sent) {
      sent(Refusal());
    }
  }

  void ExpectEnd(Peer* peer) override {
    if (!InChild()) inner_->ExpectEnd(peer);
  }

  void Close(int64_t timeout_ms) override {
    if (!InChild()) inner_->Close(timeout_ms);
  }

 private:
  bool InChild() const { return getpid() != pid_; }
  Status Refusal() const {
    return FailedPrecondition("tf_byteps was started in process " +
                              std::to_string(pid_) + "; its forked child " +
                              std::to_string(getpid()) + " cannot use it");
  }

  const pid_t pid_;
  std::unique_ptr<Inner> inner_;
};

}  // namespace byteps

#endif  // BYTEPS_TRANSPORT_FORK_SAFE_H_

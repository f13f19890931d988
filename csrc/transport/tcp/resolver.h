// Looks host names up on a thread of its own, as that may take seconds.
//
// Owned by the transport. Its thread starts with the first name. Resolve is for
// any thread; Close waits for the look-up that is going on.
#ifndef BYTEPS_TRANSPORT_TCP_RESOLVER_H_
#define BYTEPS_TRANSPORT_TCP_RESOLVER_H_

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "csrc/base/queue.h"
#include "csrc/base/status.h"
#include "csrc/base/thread.h"
#include "csrc/transport/tcp/socket.h"

namespace byteps {

class Resolver {
 public:
  using Done = std::function<void(Result<std::vector<Endpoint>>)>;

  ~Resolver() { Close(); }

  // `done` comes on the resolver's thread, or never after Close.
  void Resolve(HostPort where, Done done);
  void Close();

 private:
  struct Question {
    HostPort where;
    Done done;
  };
  void Run();

  Queue<Question> questions_;
  std::mutex mutex_;
  std::unique_ptr<Thread> thread_;  // guarded by mutex_
  bool closed_ = false;             // guarded by mutex_
};

}  // namespace byteps

#endif  // BYTEPS_TRANSPORT_TCP_RESOLVER_H_

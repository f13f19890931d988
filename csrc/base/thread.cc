#include "csrc/base/thread.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace byteps {

Thread::Thread(const std::string& name, std::function<void()> body) {
  // A new thread inherits the mask: with everything blocked, signals are
  // delivered to the program's own threads and never interrupt ours.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([name, body = std::move(body)] {
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    body();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace byteps

#include "csrc/base/thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <string>

namespace byteps {
namespace {

TEST(Thread, HasItsNameAndLeavesSignalsToOthers) {
  std::string name(16, ' ');
  sigset_t blocked;
  bool current = false;
  Thread thread;
  thread = Thread("a name that is too long", [&] {
    pthread_getname_np(pthread_self(), name.data(), name.size());
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  });
  current = thread.IsCurrent();
  thread.Join();
  thread.Join();  // once more does nothing
  EXPECT_STREQ(name.c_str(), "a name that is ");
  EXPECT_TRUE(sigismember(&blocked, SIGINT));
  EXPECT_TRUE(sigismember(&blocked, SIGTERM));
  EXPECT_FALSE(current);
  sigset_t own;
  pthread_sigmask(SIG_SETMASK, nullptr, &own);
  EXPECT_FALSE(sigismember(&own, SIGINT));
}

}  // namespace
}  // namespace byteps

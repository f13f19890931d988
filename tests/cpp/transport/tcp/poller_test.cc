#include "csrc/transport/tcp/poller.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

namespace byteps {
namespace {

struct Recorder final : Source {
  void Ready(uint32_t events) override {
    ++calls;
    last = events;
  }
  int calls = 0;
  uint32_t last = 0;
};

struct SocketPair {
  SocketPair() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    here = Socket(fds[0]);
    there = Socket(fds[1]);
  }
  Socket here, there;
};

TEST(Poller, TellsTheSourceWhatIsReady) {
  Poller poller;
  ASSERT_TRUE(poller.status().ok());
  SocketPair pair;
  Recorder recorder;
  ASSERT_EQ(poller.Add(pair.here, EPOLLIN, &recorder), 0);
  poller.Wait(0);
  EXPECT_EQ(recorder.calls, 0);
  ASSERT_EQ(write(pair.there.fd(), "x", 1), 1);
  poller.Wait(-1);
  poller.Wait(-1);  // level-triggered
  EXPECT_EQ(recorder.calls, 2);
  EXPECT_EQ(recorder.last, static_cast<uint32_t>(EPOLLIN));
  poller.Modify(pair.here, EPOLLOUT, &recorder);
  poller.Wait(-1);
  EXPECT_EQ(recorder.last, static_cast<uint32_t>(EPOLLOUT));
  poller.Remove(pair.here);
  poller.Wait(0);
  EXPECT_EQ(recorder.calls, 3);
}

TEST(Poller, WakeEndsAWaitAlsoIfItCameBefore) {
  Poller poller;
  poller.Wake();
  poller.Wake();
  poller.Wait(-1);
  std::thread other([&] { poller.Wake(); });
  poller.Wait(-1);
  other.join();
  poller.Wait(0);  // nothing is left over
}

TEST(Poller, AddSaysWhatIsWrong) {
  Poller poller;
  EXPECT_EQ(poller.Add(Socket(), EPOLLIN, nullptr), EBADF);
}

}  // namespace
}  // namespace byteps

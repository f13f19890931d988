#include "csrc/base/queue.h"

#include <gtest/gtest.h>

#include <memory>

#include "csrc/base/clock.h"
#include "csrc/base/thread.h"

namespace byteps {
namespace {

TEST(Queue, GivesItemsInTheirOrder) {
  Queue<std::unique_ptr<int>> queue;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue.Push(std::make_unique<int>(i)));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(**queue.PopUntil(NowMs()), i);
  EXPECT_FALSE(queue.PopUntil(NowMs() + 1).has_value());
}

TEST(Queue, WakesWhoWaits) {
  Queue<int> queue;
  Thread thread("test", [&queue] { queue.Push(7); });
  EXPECT_EQ(queue.PopUntil(NowMs() + 10000), 7);
}

TEST(Queue, DrainsAfterClose) {
  Queue<int> queue;
  queue.Push(1);
  queue.Close();
  EXPECT_FALSE(queue.Push(2));
  EXPECT_FALSE(queue.finished());
  EXPECT_EQ(queue.PopUntil(NowMs() + 10000), 1);
  EXPECT_TRUE(queue.finished());
  const int64_t begin = NowMs();
  EXPECT_FALSE(queue.PopUntil(begin + 10000).has_value());
  EXPECT_LT(NowMs(), begin + 5000);
}

TEST(Queue, CloseWakesWhoWaits) {
  Queue<int> queue;
  Thread thread("test", [&queue] { queue.Close(); });
  EXPECT_FALSE(queue.PopUntil(NowMs() + 10000).has_value());
  EXPECT_TRUE(queue.finished());
}

}  // namespace
}  // namespace byteps

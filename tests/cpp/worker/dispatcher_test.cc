#include "csrc/worker/dispatcher.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace byteps {
namespace {

using Started =
    std::vector<std::pair<uint32_t, uint32_t>>;  // server, partition

Queued Item(uint32_t partition, int64_t priority, uint64_t bytes = 10) {
  Queued item;
  item.partition = partition;
  item.priority = priority;
  item.bytes = bytes;
  return item;
}

std::vector<uint64_t> Equal(uint32_t servers) {
  return std::vector<uint64_t>(servers, 1);
}

class DispatcherTest : public testing::Test {
 protected:
  Dispatcher Make(uint32_t servers, uint64_t credit) {
    return Dispatcher(Equal(servers), credit,
                      [this](uint32_t s, const Queued& item) {
                        started_.emplace_back(s, item.partition);
                      });
  }
  Started started_;
};

TEST_F(DispatcherTest, HigherPriorityFirstThenFirstCome) {
  Dispatcher dispatcher = Make(1, 10);
  dispatcher.Enqueue(0, {Item(0, 0), Item(1, -5), Item(2, 3), Item(3, 3)});
  for (int i = 0; i < 4; ++i) dispatcher.Sent(0, 10);
  EXPECT_EQ(started_, (Started{{0, 2}, {0, 3}, {0, 0}, {0, 1}}));
}

TEST_F(DispatcherTest, ALateUrgentOneOvertakesWhatHasNotBegun) {
  Dispatcher dispatcher = Make(1, 10);
  dispatcher.Enqueue(0, {Item(0, 0), Item(1, 0)});
  dispatcher.Enqueue(0, {Item(2, 9)});
  dispatcher.Sent(0, 10);
  dispatcher.Sent(0, 10);
  EXPECT_EQ(started_, (Started{{0, 0}, {0, 2}, {0, 1}}));
}

TEST_F(DispatcherTest, OperationsOfOneTurnAlternate) {
  Dispatcher dispatcher = Make(1, 10);
  const uint64_t turn = dispatcher.TakeTurn();
  const auto of_turn = [turn](uint32_t partition) {
    Queued item = Item(partition, 0);
    item.turn = turn;
    return item;
  };
  dispatcher.Enqueue(0, {Item(9, 0), Item(10, 0)});
  dispatcher.Enqueue(0, {of_turn(1), of_turn(3), of_turn(5)});
  dispatcher.Enqueue(0, {of_turn(2), of_turn(4)});
  for (int i = 0; i < 7; ++i) dispatcher.Sent(0, 10);
  EXPECT_EQ(started_,
            (Started{{0, 9}, {0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}, {0, 10}}));
}

TEST_F(DispatcherTest, CreditBoundsWhatIsUnderWay) {
  Dispatcher dispatcher = Make(1, 25);
  dispatcher.Enqueue(0, {Item(0, 0), Item(1, 0), Item(2, 0), Item(3, 0)});
  EXPECT_EQ(started_.size(), 2u);
  dispatcher.Sent(0, 10);
  EXPECT_EQ(started_.size(), 3u);
}

TEST_F(DispatcherTest, APartitionLargerThanTheCreditStillGoes) {
  Dispatcher dispatcher = Make(1, 5);
  dispatcher.Enqueue(0, {Item(0, 0, 100), Item(1, 0, 100)});
  EXPECT_EQ(started_.size(), 1u);
  dispatcher.Sent(0, 100);
  EXPECT_EQ(started_.size(), 2u);
}

TEST_F(DispatcherTest, ServersHaveTheirOwnCredit) {
  Dispatcher dispatcher = Make(2, 10);
  dispatcher.Enqueue(0, {Item(0, 0), Item(1, 0)});
  dispatcher.Enqueue(1, {Item(2, 0), Item(3, 0)});
  EXPECT_EQ(started_, (Started{{0, 0}, {1, 2}}));
}

// The started ones, from the dispatcher's own thread too.
class Log {
 public:
  void Add(uint32_t partition) {
    std::lock_guard<std::mutex> lock(mutex_);
    partitions_.push_back(partition);
    changed_.notify_all();
  }
  bool WaitFor(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30),
                             [&] { return partitions_.size() >= count; });
  }
  size_t size() {
    std::lock_guard<std::mutex> lock(mutex_);
    return partitions_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint32_t> partitions_;
};

constexpr uint64_t kLarge = 1 << 20;

// Partitions that are too large for the windows to take all.
class WindowTest : public testing::Test {
 protected:
  static constexpr uint32_t kServers = 8;
  static constexpr uint32_t kCount = 32;

  void EnqueueAll(uint32_t server) { EnqueueSome(server, kCount); }
  // Returns how many were started at once.
  size_t EnqueueSome(uint32_t server, uint32_t count) {
    const size_t before = log_.size();
    std::vector<Queued> items;
    for (uint32_t i = 0; i < count; ++i) items.push_back(Item(i, 0, kLarge));
    dispatcher_.Enqueue(server, std::move(items));
    return log_.size() - before;
  }

  Log log_;
  Dispatcher dispatcher_{
      {14, 2, 8, 8, 8, 8, 8, 8},
      kCount * kLarge,
      [this](uint32_t, const Queued& item) { log_.Add(item.partition); }};
};

TEST_F(WindowTest, WhatWaitsForAnswersGoesWithThem) {
  EnqueueAll(0);
  EXPECT_LT(log_.size(), kCount);  // unless this thread slept for seconds
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_TRUE(log_.WaitFor(i + 1));
    dispatcher_.Sent(0, kLarge);
    dispatcher_.Answered(0, kLarge, 0, 0, 1000);
  }
  EXPECT_EQ(log_.size(), kCount);
}

TEST_F(WindowTest, AServerThatSumsMoreGetsMoreAtOnce) {
  EnqueueAll(0);
  const size_t to_large = log_.size();
  EnqueueAll(1);
  EXPECT_LT(2 * (log_.size() - to_large), to_large);
}

TEST_F(WindowTest, AServerThatIsAheadOfOthersGetsLessAtOnce) {
  const size_t together = EnqueueSome(2, kCount);
  for (uint32_t server = 3; server < 7; ++server) EnqueueAll(server);
  EXPECT_EQ(EnqueueSome(7, 10), together / 2);
}

TEST_F(WindowTest, WithoutAnyAnswerAllGoesInTheEnd) {
  std::vector<std::thread> threads;
  for (uint32_t server = 0; server < kServers; ++server) {
    threads.emplace_back([this, server] { EnqueueAll(server); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(log_.WaitFor(kServers * kCount));
}

TEST_F(WindowTest, EndsWithAWindowShut) { EnqueueAll(0); }

TEST_F(WindowTest, OpensNoMoreOnceItIsClosed) {
  EnqueueAll(0);
  dispatcher_.Close();
  const size_t started = log_.size();
  EnqueueAll(1);
  dispatcher_.Close();
  EXPECT_LT(log_.size(), started + kCount);
}

TEST(Dispatcher, WhatIsSentAtOnceIsNotNested) {
  int depth = 0;
  int deepest = 0;
  int count = 0;
  Dispatcher* self = nullptr;
  Dispatcher dispatcher(Equal(1), 10, [&](uint32_t server, const Queued& item) {
    deepest = std::max(deepest, ++depth);
    ++count;
    self->Sent(server, item.bytes);  // as the loopback transport may
    self->Answered(server, item.bytes, item.priority, item.place, 1000);
    --depth;
  });
  self = &dispatcher;
  std::vector<Queued> items;
  for (uint32_t i = 0; i < 10000; ++i) items.push_back(Item(i, 0));
  dispatcher.Enqueue(0, std::move(items));
  EXPECT_EQ(count, 10000);
  EXPECT_EQ(deepest, 1);
}

}  // namespace
}  // namespace byteps

#include "csrc/worker/dispatcher.h"

#include <gtest/gtest.h>

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

class DispatcherTest : public testing::Test {
 protected:
  Dispatcher Make(uint32_t servers, uint64_t credit) {
    return Dispatcher(servers, credit, [this](uint32_t s, const Queued& item) {
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

TEST(Dispatcher, WhatIsSentAtOnceIsNotNested) {
  int depth = 0;
  int deepest = 0;
  int count = 0;
  Dispatcher* self = nullptr;
  Dispatcher dispatcher(1, 10, [&](uint32_t server, const Queued& item) {
    deepest = std::max(deepest, ++depth);
    ++count;
    self->Sent(server, item.bytes);  // as the loopback transport may
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

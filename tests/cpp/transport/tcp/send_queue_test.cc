#include "csrc/transport/tcp/send_queue.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

TEST(SendQueue, KeepsTheOrderWhileItGrowsAndWraps) {
  SendQueue queue;
  uint64_t pushed = 0, popped = 0;
  for (int turn = 0; turn < 50; ++turn) {
    for (int i = 0; i < 7 + turn; ++i) {
      queue.PushBack().payload_bytes = pushed++;
    }
    for (int i = 0; i < 5 + turn && !queue.empty(); ++i) {
      EXPECT_EQ(queue.at(0).payload_bytes, popped++);
      queue.PopFront();
    }
    for (size_t i = 0; i < queue.size(); ++i) {
      ASSERT_EQ(queue.at(i).payload_bytes, popped + i);
    }
  }
}

TEST(SendQueue, PopReleasesWhatTheCallbackHolds) {
  SendQueue queue;
  auto held = std::make_shared<int>(1);
  queue.PushBack().sent = [held](Status) {};
  EXPECT_EQ(held.use_count(), 2);
  queue.PopFront()(OkStatus());
  EXPECT_EQ(held.use_count(), 1);
}

TEST(QueuedSend, CountsHeaderAndPayload) {
  QueuedSend message;
  message.payload_bytes = 10;
  EXPECT_EQ(message.left(), Header::kBytes + 10);
  message.written = 50;
  EXPECT_EQ(message.left(), 8u);
}

}  // namespace
}  // namespace byteps

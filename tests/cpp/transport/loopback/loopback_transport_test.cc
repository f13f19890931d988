// What only loopback has: a process that dials itself. The common contract is
// tested in tests/cpp/transport_conformance.
#include "csrc/transport/loopback/loopback_transport.h"

#include <gtest/gtest.h>

#include "tests/cpp/transport_conformance/harness.h"

namespace byteps {
namespace testing {
namespace {

class LoopbackToSelf : public ::testing::Test {
 protected:
  LoopbackToSelf() : config_(WorkerConfig({"here:1"}, 0)) {
    transport_ = MakeLoopbackTransport(config_, &receiver_, &hub_);
    EXPECT_TRUE(transport_->Listen("here:1").ok());
    dialed_ = transport_->Dial(config_.self, "here:1");
    joined_ = receiver_.WaitJoined(config_.self);
  }

  const Config config_;
  LoopbackHub hub_;
  RecordingReceiver receiver_;
  std::unique_ptr<Transport> transport_;
  Peer* dialed_ = nullptr;
  Peer* joined_ = nullptr;
};

TEST_F(LoopbackToSelf, IsOnePeer) {
  EXPECT_EQ(dialed_, joined_);
  EXPECT_EQ(joined_->label(), "worker 0 (here:1)");
}

TEST_F(LoopbackToSelf, WhatIsSentArrivesHere) {
  const std::vector<uint8_t> payload = PatternOf(0, 3, 100000);
  Completions sent;
  transport_->Send(joined_, DataHeader(3, payload.size()), payload.data(),
                   sent.Next());
  ASSERT_TRUE(receiver_.WaitMessages(1));
  EXPECT_EQ(receiver_.messages()[0].peer, joined_);
  EXPECT_TRUE(receiver_.messages()[0].payload == payload);
}

TEST_F(LoopbackToSelf, CloseFlushesAndSaysLost) {
  const std::vector<uint8_t> payload = PatternOf(0, 3, 1 << 20);
  Completions sent;
  for (int i = 0; i < 20; ++i) {
    transport_->Send(joined_, DataHeader(i, payload.size()), payload.data(),
                     sent.Next());
  }
  transport_->Close(kPatienceMs);
  receiver_.Seal();
  EXPECT_EQ(sent.ok(), 20u);
  EXPECT_EQ(receiver_.message_count(), 20u);
  EXPECT_EQ(receiver_.lost_count(), 1u);
}

TEST_F(LoopbackToSelf, CloseAtOnceCompletesTheSends) {
  const std::vector<uint8_t> payload = PatternOf(0, 3, 1 << 20);
  Completions sent;
  for (int i = 0; i < 50; ++i) {
    transport_->Send(joined_, DataHeader(i, payload.size()), payload.data(),
                     sent.Next());
  }
  transport_->Close(0);
  EXPECT_EQ(sent.ok() + sent.failed(), 50u);
  EXPECT_EQ(receiver_.lost_count(), 1u);
}

}  // namespace
}  // namespace testing
}  // namespace byteps

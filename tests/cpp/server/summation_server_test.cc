#include "csrc/server/summation_server.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "csrc/base/log.h"
#include "tests/cpp/fake_transport.h"

namespace byteps {
namespace {

class SummationServerTest : public testing::Test {
 protected:
  SummationServerTest() {
    ConfigureLog(LogLevel::kError, "test");
    config_.self = {Role::kServer, 0};
    config_.workers = {"a:1", "b:1"};
    config_.servers = {"s:1"};
    server_ = std::make_unique<SummationServer>(config_);
    server_->Start(1);
    for (uint32_t rank = 0; rank < 2; ++rank) {
      workers_.push_back(transport_.Add({Role::kWorker, rank}));
      server_->AddWorker(rank, workers_[rank]);
    }
    declaration_.name = "t";
    declaration_.shape = {2};
    declaration_.partition_bytes = 4096;
  }
  ~SummationServerTest() override {
    End();
    transport_.Complete(OkStatus());  // payloads live in the server's pool
    ConfigureLog(LogLevel::kWarning, "test");
  }

  // After this all that was received has been answered.
  void End() {
    server_->Close();
    server_->Join();
  }

  Header HeaderOf(Kind kind, size_t bytes) const {
    Header header;
    header.kind = kind;
    header.membership_epoch = 1;
    header.key = {TensorId("t"), 0};
    header.payload_bytes = bytes;
    return header;
  }

  bool Deliver(uint32_t rank, const Header& header, const void* data) {
    const Landing landing = server_->Land(workers_[rank], header);
    if (!landing.accept) return false;
    if (header.payload_bytes > 0) {
      std::memcpy(landing.data, data, header.payload_bytes);
    }
    server_->Arrived(workers_[rank], header, landing);
    return true;
  }

  void Declare(uint32_t rank) {
    const std::vector<uint8_t> body = Encode(declaration_);
    ASSERT_TRUE(
        Deliver(rank, HeaderOf(Kind::kDeclare, body.size()), body.data()));
  }

  bool Push(uint32_t rank, const std::vector<float>& values,
            uint64_t round = 0) {
    Header header = HeaderOf(Kind::kPush, values.size() * sizeof(float));
    header.round = round;
    return Deliver(rank, header, values.data());
  }

  bool Join(uint32_t rank, size_t bytes = 0) {
    const std::vector<uint8_t> payload(bytes);
    Header header = HeaderOf(Kind::kJoin, bytes);
    header.key = Key();
    return Deliver(rank, header, payload.data());
  }

  Config config_;
  Declaration declaration_;
  FakeTransport transport_;
  std::vector<Peer*> workers_;
  std::unique_ptr<SummationServer> server_;
};

TEST_F(SummationServerTest, AnswersAllWithTheSum) {
  Declare(0);
  Declare(1);
  EXPECT_TRUE(Push(0, {1, 2}));
  EXPECT_TRUE(Push(1, {10, 20}));
  End();
  ASSERT_EQ(transport_.messages.size(), 2u);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const SentMessage& message = transport_.messages[rank];
    EXPECT_EQ(message.peer, workers_[rank]);
    EXPECT_EQ(message.header.kind, Kind::kResult);
    float sum[2];
    ASSERT_EQ(message.payload.size(), sizeof(sum));
    std::memcpy(sum, message.payload.data(), sizeof(sum));
    EXPECT_EQ(sum[0], 11);
    EXPECT_EQ(sum[1], 22);
  }
  EXPECT_EQ(server_->counters().pushes, 2u);
  EXPECT_EQ(server_->counters().results, 2u);
  EXPECT_EQ(server_->counters().bytes_summed, 16u);
}

TEST_F(SummationServerTest, WhatBreaksTheProtocolIsRefused) {
  EXPECT_FALSE(Push(0, {1, 2}));  // not declared
  Declare(0);
  EXPECT_FALSE(Push(1, {1, 2}));     // not by this worker
  EXPECT_FALSE(Push(0, {1, 2, 3}));  // another length
  Header header = HeaderOf(Kind::kPush, 8);
  header.membership_epoch = 2;
  EXPECT_FALSE(server_->Land(workers_[0], header).accept);
  header = HeaderOf(Kind::kPush, 8);
  header.key.partition = 1;  // there is only one
  EXPECT_FALSE(server_->Land(workers_[0], header).accept);
  header = HeaderOf(Kind::kDeclare, uint64_t{1} << 40);
  EXPECT_FALSE(server_->Land(workers_[0], header).accept);
  Peer* stranger = transport_.Add({Role::kWorker, 7});
  EXPECT_FALSE(server_->Land(stranger, HeaderOf(Kind::kDeclare, 10)).accept);
  Peer* server = transport_.Add({Role::kServer, 0});
  EXPECT_FALSE(server_->Land(server, HeaderOf(Kind::kDeclare, 10)).accept);
  EXPECT_TRUE(Push(0, {1, 2}));  // and a good one still works
}

TEST_F(SummationServerTest, ABadDeclarationLeavesNone) {
  Declare(0);
  const std::vector<uint8_t> noise(50, 0xff);
  EXPECT_TRUE(Deliver(0, HeaderOf(Kind::kDeclare, noise.size()), noise.data()));
  EXPECT_FALSE(Push(0, {1, 2}));
}

TEST_F(SummationServerTest, WhoLeftFailsTheOthersRounds) {
  Declare(0);
  EXPECT_TRUE(Push(0, {1, 2}));
  server_->WorkerLeft(1, Unavailable("worker 1 left the job"));
  EXPECT_TRUE(Push(0, {1, 2}, 1));
  End();
  ASSERT_EQ(transport_.messages.size(), 2u);
  for (const SentMessage& message : transport_.messages) {
    EXPECT_EQ(message.header.kind, Kind::kRoundError);
    EXPECT_EQ(
        DecodeError(message.payload.data(), message.payload.size()).message(),
        "worker 1 left the job");
  }
}

TEST_F(SummationServerTest, WhoHasJoinedIsNotWaitedForUntilAllHave) {
  Declare(0);
  Declare(1);
  EXPECT_TRUE(Push(1, {10, 20}));
  EXPECT_TRUE(Push(0, {1, 2}));
  EXPECT_TRUE(Join(1));  // behind its push
  EXPECT_TRUE(Push(0, {3, 4}, 1));
  EXPECT_TRUE(Join(0));
  const uint64_t next = uint64_t{1} << 40;
  EXPECT_TRUE(Push(0, {5, 6}, next));
  EXPECT_TRUE(Push(1, {50, 60}, next));
  End();
  std::vector<float> firsts[2];
  for (const SentMessage& message : transport_.messages) {
    const uint32_t rank = message.peer == workers_[1];
    if (message.header.kind == Kind::kJoined) {
      EXPECT_EQ(message.header.round, 0u);  // worker 0 was the last
      EXPECT_EQ(message.header.membership_epoch, 1u);
      EXPECT_EQ(message.header.payload_bytes, 0u);
      continue;
    }
    ASSERT_EQ(message.header.kind, Kind::kResult);
    float sum[2];
    ASSERT_EQ(message.payload.size(), sizeof(sum));
    std::memcpy(sum, message.payload.data(), sizeof(sum));
    firsts[rank].push_back(sum[0]);
  }
  EXPECT_EQ(transport_.Count(Kind::kJoined), 2u);
  EXPECT_EQ(firsts[0], (std::vector<float>{11, 3, 55}));
  EXPECT_EQ(firsts[1], (std::vector<float>{11, 55}));
}

TEST_F(SummationServerTest, AJoinHasNoPayload) {
  EXPECT_FALSE(Join(0, 8));
  EXPECT_TRUE(Join(0));
}

TEST_F(SummationServerTest, AJoinFailsWhenAWorkerLeaves) {
  EXPECT_TRUE(Join(0));
  server_->WorkerLeft(1, Unavailable("worker 1 left the job"));
  End();
  ASSERT_EQ(transport_.messages.size(), 1u);
  const SentMessage& message = transport_.messages[0];
  EXPECT_EQ(message.peer, workers_[0]);
  EXPECT_EQ(message.header.kind, Kind::kJoinError);
  EXPECT_EQ(
      DecodeError(message.payload.data(), message.payload.size()).message(),
      "worker 1 left the job");
}

TEST_F(SummationServerTest, AnAbandonedPayloadIsForgotten) {
  Declare(0);
  const Header header = HeaderOf(Kind::kPush, 8);
  const Landing landing = server_->Land(workers_[0], header);
  ASSERT_TRUE(landing.accept);
  server_->Abandoned(workers_[0], header, landing);
  EXPECT_TRUE(Push(0, {1, 2}));
}

TEST_F(SummationServerTest, AfterCloseNothingIsAnswered) {
  Declare(0);
  Declare(1);
  End();
  Push(0, {1, 2});
  Push(1, {1, 2});
  EXPECT_TRUE(transport_.messages.empty());
}

}  // namespace
}  // namespace byteps

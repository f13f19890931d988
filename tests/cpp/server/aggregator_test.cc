#include "csrc/server/aggregator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

namespace byteps {
namespace {

class AggregatorTest : public testing::Test {
 protected:
  AggregatorTest() {
    config_.workers = {"a:1", "b:1"};
    config_.servers = {"s:1"};
    config_.stall_warning_ms = 10;
    config_.stall_limit_ms = 100;
    aggregator_ = std::make_unique<Aggregator>(config_, &pool_, true);
  }

  void Push(const Key& key, uint32_t rank, uint64_t round, int32_t value) {
    auto declaration = std::make_shared<Declaration>();
    declaration->name = "t" + std::to_string(key.tensor);
    declaration->dtype = DType::kInt32;
    declaration->shape = {1};
    declaration->partition_bytes = 16;
    Contribution c;
    c.rank = rank;
    c.round = round;
    c.declaration = declaration;
    ASSERT_TRUE(pool_.Take(sizeof(value), &c.data));
    std::memcpy(c.data.data(), &value, sizeof(value));
    out_.clear();
    aggregator_->Push(key, std::move(c), 0, &out_);
  }

  void Join(uint32_t rank, uint64_t push_pulls = 0) {
    out_.clear();
    aggregator_->WorkerJoined(rank, push_pulls, &out_);
  }

  // The ranks that were sent `kind`.
  std::vector<uint32_t> Told(Kind kind) const {
    std::vector<uint32_t> ranks;
    for (const Outgoing& o : out_) {
      if (o.kind == kind) ranks.push_back(o.rank);
    }
    return ranks;
  }

  int32_t Value(size_t i) {
    int32_t value = 0;
    std::memcpy(&value, out_[i].payload->data(), sizeof(value));
    return value;
  }

  Config config_;
  BufferPool pool_{1 << 20};
  std::unique_ptr<Aggregator> aggregator_;
  Outbox out_;
};

TEST_F(AggregatorTest, KeysAreApart) {
  Push({1, 0}, 0, 0, 1);
  Push({1, 1}, 0, 0, 10);
  Push({2, 0}, 0, 0, 100);
  EXPECT_TRUE(aggregator_->has_open_round());
  Push({1, 1}, 1, 0, 20);
  ASSERT_EQ(out_.size(), 2u);
  EXPECT_EQ(Value(0), 30);
  Push({2, 0}, 1, 0, 200);
  EXPECT_EQ(Value(1), 300);
  Push({1, 0}, 1, 0, 2);
  EXPECT_EQ(Value(0), 3);
  EXPECT_FALSE(aggregator_->has_open_round());
}

TEST_F(AggregatorTest, ALossConcernsAllKeysNowAndLater) {
  Push({1, 0}, 0, 0, 1);
  Push({2, 0}, 0, 0, 1);
  out_.clear();
  aggregator_->Fail(Unavailable("gone"), &out_);
  EXPECT_EQ(out_.size(), 2u);
  Push({3, 0}, 1, 0, 1);
  ASSERT_EQ(out_.size(), 1u);
  EXPECT_EQ(out_[0].kind, Kind::kRoundError);
}

TEST_F(AggregatorTest, WhoLeftIsMissedByLaterRoundsOnly) {
  Push({1, 0}, 1, 0, 5);
  out_.clear();
  aggregator_->WorkerLeft(1, Unavailable("worker 1 left"), &out_);
  EXPECT_TRUE(out_.empty());
  Push({1, 0}, 0, 0, 1);
  ASSERT_EQ(out_.size(), 2u);
  EXPECT_EQ(Value(0), 6);
  Push({2, 0}, 0, 0, 1);
  ASSERT_EQ(out_.size(), 1u);
  EXPECT_EQ(out_[0].kind, Kind::kRoundError);
}

TEST_F(AggregatorTest, StallsAreFoundAmongOpenRounds) {
  Push({1, 0}, 0, 0, 1);
  out_.clear();
  EXPECT_TRUE(aggregator_->CheckStalls(5, &out_).empty());
  EXPECT_EQ(aggregator_->CheckStalls(20, &out_).size(), 1u);
  out_.clear();
  EXPECT_TRUE(aggregator_->CheckStalls(200, &out_).empty());
  ASSERT_EQ(out_.size(), 1u);
  EXPECT_EQ(out_[0].kind, Kind::kRoundError);
  EXPECT_FALSE(aggregator_->has_open_round());
}

using Ranks = std::vector<uint32_t>;

TEST_F(AggregatorTest, AJoinConcernsAllKeysNowAndLater) {
  Push({1, 0}, 0, 0, 1);
  Push({2, 0}, 0, 0, 2);
  Join(1);
  EXPECT_EQ(Told(Kind::kResult), (Ranks{0, 0}));
  EXPECT_FALSE(aggregator_->has_open_round());
  Push({3, 0}, 0, 0, 3);
  ASSERT_EQ(Told(Kind::kResult), (Ranks{0}));
  EXPECT_EQ(Value(0), 3);
}

TEST_F(AggregatorTest, WhenAllHaveJoinedAllAreToldAndEverythingIsAsBefore) {
  for (uint32_t last : {0u, 1u}) {
    Join(1 - last);
    Join(1 - last);  // twice is once
    EXPECT_TRUE(out_.empty());
    Join(last);
    EXPECT_EQ(Told(Kind::kJoined), (Ranks{0, 1}));
    for (const Outgoing& o : out_) EXPECT_EQ(o.round, last);
    const uint64_t round = (uint64_t{last} + 1) << 40;
    Push({1, 0}, 0, round, 1);
    EXPECT_TRUE(out_.empty());
    Push({1, 0}, 1, round, 2);
    EXPECT_EQ(Value(1), 3);
  }
}

TEST_F(AggregatorTest, TheLastIsWhoWentOnTheLongest) {
  Join(1, 8);
  Join(0, 7);  // it has come from far
  EXPECT_EQ(out_[0].round, 1u);
  Join(1, 3);
  Join(0, 3);
  EXPECT_EQ(out_[0].round, 0u);
}

TEST_F(AggregatorTest, OnlyOneAnswersJoins) {
  aggregator_ = std::make_unique<Aggregator>(config_, &pool_, false);
  Join(0);
  Push({1, 0}, 1, 0, 1);
  EXPECT_EQ(Told(Kind::kResult), (Ranks{1}));
  Join(1);
  EXPECT_TRUE(out_.empty());
  Push({1, 0}, 0, uint64_t{1} << 40, 1);
  EXPECT_TRUE(out_.empty());  // it waits for both again
}

TEST_F(AggregatorTest, WhoHasJoinedIsToldThatAnotherIsGone) {
  Join(0);
  out_.clear();
  aggregator_->WorkerLeft(1, Unavailable("worker 1 left"), &out_);
  ASSERT_EQ(Told(Kind::kJoinError), (Ranks{0}));
  const Payload& payload = *out_[0].payload;
  EXPECT_EQ(
      DecodeError(static_cast<const uint8_t*>(payload.data()), payload.size())
          .message(),
      "worker 1 left");
}

TEST_F(AggregatorTest, WhoJoinsAfterALossIsTold) {
  aggregator_->Fail(Unavailable("gone"), &out_);
  Join(1);
  EXPECT_EQ(Told(Kind::kJoinError), (Ranks{1}));
  Join(0);
  EXPECT_EQ(Told(Kind::kJoinError), (Ranks{0}));
  EXPECT_EQ(Told(Kind::kJoined), Ranks());
}

}  // namespace
}  // namespace byteps

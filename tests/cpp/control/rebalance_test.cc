#include "csrc/control/rebalance.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

class RebalanceTest : public testing::Test {
 protected:
  static Config ThreeWorkers() {
    Config config;
    config.workers = {"a:1", "b:1", "c:1"};
    config.servers = {"s:1", "s:2"};
    return config;
  }
  static RebalanceBody Answer(uint64_t version,
                              std::vector<TensorRound> rounds) {
    return {version, {}, std::move(rounds)};
  }

  Rebalance rebalance_{ThreeWorkers()};
};

TEST_F(RebalanceTest, TheLastAnswerCommitsWithTheLargestRounds) {
  const auto prepare = rebalance_.Propose({10, 20});
  ASSERT_TRUE(prepare.has_value());
  EXPECT_EQ(prepare->version, 1u);
  EXPECT_EQ(prepare->shares, (std::vector<uint64_t>{10, 20}));
  EXPECT_FALSE(rebalance_.Answered(2, Answer(1, {{5, 7}, {6, 1}})));
  EXPECT_FALSE(rebalance_.Answered(0, Answer(1, {{5, 8}})));
  const auto commit = rebalance_.Answered(1, Answer(1, {{5, 7}, {9, 2}}));
  ASSERT_TRUE(commit.has_value());
  EXPECT_EQ(commit->version, 1u);
  EXPECT_EQ(commit->shares, prepare->shares);
  EXPECT_EQ(commit->rounds, (std::vector<TensorRound>{{5, 8}, {6, 1}, {9, 2}}));
}

TEST_F(RebalanceTest, OneAtATime) {
  ASSERT_TRUE(rebalance_.Propose({10, 20}).has_value());
  EXPECT_FALSE(rebalance_.Propose({20, 10}).has_value());
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(rebalance_.Answered(rank, Answer(1, {})).has_value(), rank == 2);
  }
  // The commit is not on its way yet.
  EXPECT_FALSE(rebalance_.Propose({20, 10}).has_value());
  rebalance_.Committed();
  const auto next = rebalance_.Propose({20, 10});
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->version, 2u);
  EXPECT_TRUE(next->rounds.empty());
}

TEST_F(RebalanceTest, OtherAnswersDoNotCount) {
  EXPECT_FALSE(rebalance_.Answered(0, Answer(0, {})));
  ASSERT_TRUE(rebalance_.Propose({10, 20}).has_value());
  EXPECT_FALSE(rebalance_.Answered(0, Answer(1, {})));
  EXPECT_FALSE(rebalance_.Answered(0, Answer(1, {})));  // once more
  EXPECT_FALSE(rebalance_.Answered(1, Answer(2, {{5, 9}})));
  EXPECT_FALSE(rebalance_.Answered(3, Answer(1, {})));
  EXPECT_FALSE(rebalance_.Answered(1, Answer(1, {})));
  const auto commit = rebalance_.Answered(2, Answer(1, {}));
  ASSERT_TRUE(commit.has_value());
  EXPECT_TRUE(commit->rounds.empty());
}

TEST_F(RebalanceTest, WhoLeavesIsNotWaitedFor) {
  ASSERT_TRUE(rebalance_.Propose({10, 20}).has_value());
  EXPECT_FALSE(rebalance_.Answered(0, Answer(1, {})));
  EXPECT_FALSE(rebalance_.Left(1));
  EXPECT_TRUE(rebalance_.Answered(2, Answer(1, {})).has_value());
  rebalance_.Committed();
  EXPECT_FALSE(rebalance_.Propose({20, 10}).has_value());
}

TEST_F(RebalanceTest, TheLastOneToAnswerMayLeave) {
  ASSERT_TRUE(rebalance_.Propose({10, 20}).has_value());
  EXPECT_FALSE(rebalance_.Answered(0, Answer(1, {})));
  EXPECT_FALSE(rebalance_.Answered(2, Answer(1, {})));
  EXPECT_TRUE(rebalance_.Left(1).has_value());
}

}  // namespace
}  // namespace byteps

#include "csrc/worker/moves.h"

#include <gtest/gtest.h>

#include <vector>

#include "csrc/worker/shares.h"

namespace byteps {
namespace {

// Parts of kWholeModel, in 64ths.
std::vector<uint64_t> Shares(std::vector<uint64_t> parts) {
  for (uint64_t& part : parts) part *= kWholeModel / 64;
  return parts;
}

// How many of `count` partitions, which the plan gives the servers in turn, end
// where.
std::vector<int> Counts(const Moves& moves, uint64_t tensor, uint32_t count,
                        uint32_t servers) {
  std::vector<int> counts(servers);
  for (uint32_t p = 0; p < count; ++p) {
    ++counts[moves.ServerOf({tensor, p}, p % servers)];
  }
  return counts;
}

TEST(Moves, WithoutAChangeNothingMoves) {
  const std::vector<uint64_t> planned = Shares({16, 16, 16, 16});
  for (const Moves& moves : {Moves(), Moves(planned, planned)}) {
    for (uint32_t p = 0; p < 100; ++p) {
      EXPECT_EQ(moves.ServerOf({p * 77ull, p}, p % 4), p % 4);
    }
  }
}

TEST(Moves, OnlyWhoLosesGivesAndOnlyWhoGainsGets) {
  const Moves moves(Shares({16, 16, 16, 16}), Shares({4, 16, 20, 24}));
  for (uint32_t p = 0; p < 1000; ++p) {
    EXPECT_EQ(moves.ServerOf({99, p}, 1), 1u);
    EXPECT_EQ(moves.ServerOf({99, p}, 2), 2u);
    EXPECT_EQ(moves.ServerOf({99, p}, 3), 3u);
    EXPECT_NE(moves.ServerOf({99, p}, 0), 1u);
  }
}

TEST(Moves, AmountsAreThoseOfTheShares) {
  const Moves moves(Shares({16, 16, 16, 16}), Shares({4, 16, 20, 24}));
  for (uint64_t tensor : {1ull, 0xdeadbeef12345678ull, 1ull << 63}) {
    const std::vector<int> counts = Counts(moves, tensor, 1024, 4);
    EXPECT_NEAR(counts[0], 64, 3);
    EXPECT_EQ(counts[1], 256);
    EXPECT_NEAR(counts[2], 320, 3);
    EXPECT_NEAR(counts[3], 384, 3);
  }
}

TEST(Moves, FirstPartitionsStay) {
  const Moves moves(Shares({32, 32}), Shares({1, 63}));
  for (uint64_t tensor = 0; tensor < 1000; ++tensor) {
    EXPECT_EQ(moves.ServerOf({tensor * 0x123456789, 0}, 0), 0u);
  }
}

TEST(Moves, SharesMayBeNothingAndAll) {
  const Moves moves(Shares({0, 64}), Shares({64, 0}));
  for (uint32_t p = 1; p < 100; ++p) EXPECT_EQ(moves.ServerOf({5, p}, 1), 0u);
  EXPECT_EQ(moves.ServerOf({5, 1}, 0), 0u);
}

class MovesByRoundTest : public testing::Test {
 protected:
  // Takes everything from server 0 and gives it to `to`, of four.
  static Moves AllTo(uint32_t to) {
    std::vector<uint64_t> parts(4);
    parts[to] = 64;
    return Moves(Shares({64, 0, 0, 0}), Shares(parts));
  }
  uint32_t Server(uint64_t tensor, uint64_t round) const {
    return moves_.For(tensor, round).ServerOf({tensor, 1}, 0);
  }

  MovesByRound moves_;
};

TEST_F(MovesByRoundTest, BeforeACommitThePlanHolds) {
  EXPECT_EQ(Server(5, 0), 0u);
}

TEST_F(MovesByRoundTest, EarlierRoundsKeepTheirServers) {
  moves_.Commit(AllTo(1), {{5, 7}});
  EXPECT_EQ(Server(5, 6), 0u);
  EXPECT_EQ(Server(5, 7), 1u);
  EXPECT_EQ(Server(5, uint64_t{1} << 40), 1u);
  EXPECT_EQ(Server(6, 0), 1u);  // nobody had begun it
}

TEST_F(MovesByRoundTest, ATensorThatNobodyPushesKeepsItsOldRound) {
  // A worker still has round 6 to make, however often the shares change.
  moves_.Commit(AllTo(1), {{5, 7}});
  moves_.Commit(AllTo(2), {{5, 7}});
  moves_.Commit(AllTo(3), {{5, 7}});
  EXPECT_EQ(Server(5, 6), 0u);
  EXPECT_EQ(Server(5, 7), 3u);
}

TEST_F(MovesByRoundTest, ChangesFollowEachOther) {
  moves_.Commit(AllTo(1), {{5, 7}});
  moves_.Commit(AllTo(2), {{5, 8}, {6, 1}});
  EXPECT_EQ(Server(5, 7), 1u);
  EXPECT_EQ(Server(5, 8), 2u);
  // Its round 0 came after the first commit.
  EXPECT_EQ(Server(6, 0), 1u);
  EXPECT_EQ(Server(6, 1), 2u);
  moves_.Commit(Moves(), {{5, 20}, {6, 2}});
  EXPECT_EQ(Server(5, 19), 2u);
  EXPECT_EQ(Server(5, 20), 0u);
}

}  // namespace
}  // namespace byteps

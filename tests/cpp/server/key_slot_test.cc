#include "csrc/server/key_slot.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/reduce/half.h"

namespace byteps {
namespace {

constexpr Key kKey{5, 2};

class KeySlotTest : public testing::Test {
 protected:
  static Declaration Sum(DType dtype = DType::kFloat32, int64_t count = 2) {
    Declaration d;
    d.name = "t";
    d.dtype = dtype;
    d.shape = {count};
    d.partition_bytes = 4096;
    return d;
  }

  static Contribution From(uint32_t rank, uint64_t round,
                           const Declaration& declaration) {
    Contribution c;
    c.rank = rank;
    c.round = round;
    c.declaration = std::make_shared<Declaration>(declaration);
    return c;
  }

  template <typename T>
  void Push(uint32_t rank, uint64_t round, std::vector<T> values,
            const Declaration& declaration) {
    Contribution c = From(rank, round, declaration);
    const size_t bytes = values.size() * sizeof(T);
    ASSERT_TRUE(pool_.Take(bytes, &c.data));
    if (bytes > 0) std::memcpy(c.data.data(), values.data(), bytes);
    out_.clear();
    slot_.Push(std::move(c), absences_, now_ms_, &out_);
  }
  void Push(uint32_t rank, uint64_t round, std::vector<float> values) {
    Push(rank, round, std::move(values), Sum());
  }

  // As Push, of values in a worker's own memory, which may not be written to.
  template <typename T>
  void PushTheirs(uint32_t rank, uint64_t round, const std::vector<T>& values,
                  const Declaration& declaration) {
    Contribution c = From(rank, round, declaration);
    const size_t bytes = values.size() * sizeof(T);
    void* place = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(place, MAP_FAILED);
    std::memcpy(place, values.data(), bytes);
    ASSERT_EQ(mprotect(place, bytes, PROT_READ), 0);
    c.data = Buffer(&theirs_, static_cast<uint8_t*>(place), bytes, bytes, true);
    ++theirs_.lent;
    out_.clear();
    slot_.Push(std::move(c), absences_, now_ms_, &out_);
  }

  // Lends pages and has them back; a page that is read afterwards is gone.
  struct Workers final : BufferSource {
    void GiveBack(uint8_t* data, size_t capacity) override {
      munmap(data, capacity);
      --lent;
    }
    int lent = 0;
  };

  void Join(uint32_t rank) {
    absences_.joined[rank] = true;
    out_.clear();
    slot_.WorkerJoined(absences_, &out_);
  }

  // What these were sent, if it is the same result for all.
  template <typename T = float>
  std::vector<T> Result(const std::vector<uint32_t>& ranks = {0, 1, 2}) {
    std::vector<T> values;
    std::vector<uint32_t> receivers;
    for (const Outgoing& o : out_) {
      receivers.push_back(o.rank);
      EXPECT_EQ(o.kind, Kind::kResult);
      EXPECT_TRUE(o.key == kKey);
      EXPECT_EQ(o.payload, out_[0].payload);
      if (o.kind != Kind::kResult || o.payload == nullptr) continue;
      const Payload& payload = *o.payload;
      values.resize(payload.size() / sizeof(T));
      std::memcpy(values.data(), payload.data(), payload.size());
    }
    EXPECT_EQ(receivers, ranks);
    return values;
  }

  // The ranks that were sent an error whose text has `words`.
  std::vector<uint32_t> Errors(const std::string& words) {
    std::vector<uint32_t> ranks;
    for (const Outgoing& o : out_) {
      EXPECT_EQ(o.kind, Kind::kRoundError);
      const Status status = DecodeError(
          static_cast<const uint8_t*>(o.payload->data()), o.payload->size());
      EXPECT_NE(status.message().find(words), std::string::npos)
          << status.message();
      ranks.push_back(o.rank);
    }
    return ranks;
  }

  Workers theirs_;
  BufferPool pool_{1 << 20};
  KeySlot slot_{kKey, 3, &pool_};
  Absences absences_{3};
  int64_t now_ms_ = 1000;
  Outbox out_;
};

using Floats = std::vector<float>;
using Ranks = std::vector<uint32_t>;

TEST_F(KeySlotTest, TheLastPushClosesTheRound) {
  Push(0, 0, {1, 10});
  EXPECT_TRUE(out_.empty());
  EXPECT_TRUE(slot_.has_open_round());
  Push(1, 0, {2, 20});
  Push(2, 0, {3, 30});
  EXPECT_EQ(Result(), (Floats{6, 60}));
  EXPECT_FALSE(slot_.has_open_round());
}

TEST_F(KeySlotTest, ASumHasTheSameBitsWhateverTheOrderOfArrival) {
  // In float32 (a + b) + c and a + (b + c) differ for these.
  const Floats parts = {1e8f, -1e8f, 1.0f};
  std::vector<Floats> results;
  const Ranks orders[] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                          {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  uint64_t round = 0;
  for (const Ranks& order : orders) {
    for (uint32_t rank : order) Push(rank, round, {parts[rank], 0});
    results.push_back(Result());
    ++round;
  }
  for (const Floats& result : results) EXPECT_EQ(result, (Floats{1, 0}));
}

TEST_F(KeySlotTest, AFastWorkersNextPushWaitsForItsOwnRound) {
  Push(0, 0, {1, 1});
  Push(1, 0, {2, 2});
  Push(0, 1, {100, 100});
  EXPECT_TRUE(out_.empty());
  Push(2, 0, {3, 3});
  EXPECT_EQ(Result(), (Floats{6, 6}));
  Push(2, 1, {300, 300});
  Push(1, 1, {200, 200});
  EXPECT_EQ(Result(), (Floats{600, 600}));
}

TEST_F(KeySlotTest, AverageMinAndMax) {
  for (auto [operation, expected] :
       {std::pair{Operation::kAverage, 2.0f}, std::pair{Operation::kMin, 1.0f},
        std::pair{Operation::kMax, 3.0f}}) {
    Declaration d = Sum();
    d.operation = operation;
    static uint64_t round = 0;
    for (uint32_t rank : {2u, 0u, 1u}) {
      Push<float>(rank, round, {rank + 1.0f, rank + 1.0f}, d);
    }
    EXPECT_EQ(Result(), (Floats{expected, expected}));
    ++round;
  }
}

TEST_F(KeySlotTest, HalvesAreAveragedBeforeTheyAreRounded) {
  Declaration d = Sum(DType::kFloat16, 1);
  d.operation = Operation::kAverage;
  const uint16_t big = FloatToFloat16(40000);
  for (uint32_t rank = 0; rank < 3; ++rank) Push<uint16_t>(rank, 0, {big}, d);
  EXPECT_EQ(Result<uint16_t>(), std::vector<uint16_t>{big});
}

// More than a step of the sum, and no multiple of one.
constexpr size_t kMany = 100003;

// Values of a rank: of it and of the position, exact in half types too.
template <typename T>
std::vector<T> Pattern(uint32_t rank, T (*from)(float)) {
  std::vector<T> values(kMany);
  for (size_t i = 0; i < kMany; ++i) {
    values[i] = from(static_cast<float>((i * (rank + 1)) % 7 + rank));
  }
  return values;
}

float Same(float value) { return value; }

TEST_F(KeySlotTest, WorkersMemoryIsReadAndReturnedAtTheEnd) {
  const Floats parts[] = {Pattern(0, Same), Pattern(1, Same), Pattern(2, Same)};
  const auto combined = [&](auto combine) {
    Floats out(kMany);
    for (size_t i = 0; i < kMany; ++i) {
      out[i] = combine(parts[0][i], parts[1][i], parts[2][i]);
    }
    return out;
  };
  using F = float;
  const std::pair<Operation, Floats> cases[] = {
      {Operation::kSum, combined([](F a, F b, F c) { return a + b + c; })},
      {Operation::kAverage,
       combined([](F a, F b, F c) { return (a + b + c) / 3; })},
      {Operation::kMin,
       combined([](F a, F b, F c) { return std::min({a, b, c}); })},
      {Operation::kMax,
       combined([](F a, F b, F c) { return std::max({a, b, c}); })}};
  uint64_t round = 0;
  for (const auto& [operation, expected] : cases) {
    Declaration d = Sum(DType::kFloat32, kMany);
    d.operation = operation;
    // Those of `theirs` are a worker's memory, the others were received.
    for (unsigned theirs = 0; theirs < 8; ++theirs) {
      for (uint32_t rank : {1u, 0u, 2u}) {
        if ((theirs >> rank & 1) != 0) {
          PushTheirs(rank, round, parts[rank], d);
        } else {
          Push(rank, round, parts[rank], d);
        }
      }
      EXPECT_EQ(Result(), expected) << Name(operation) << " " << theirs;
      EXPECT_EQ(theirs_.lent, 0);
      ++round;
    }
  }
}

TEST_F(KeySlotTest, AlsoThatOfHalves) {
  for (auto [dtype, from] : {std::pair{DType::kFloat16, &FloatToFloat16},
                             std::pair{DType::kBFloat16, &FloatToBFloat16}}) {
    std::vector<uint16_t> expected[2];
    for (size_t i = 0; i < kMany; ++i) {
      const auto sum =
          static_cast<float>(i % 7 + 2 * i % 7 + 1 + 3 * i % 7 + 2);
      expected[0].push_back(from(sum));
      expected[1].push_back(from(sum / 3));
    }
    for (uint64_t average : {0, 1}) {
      Declaration d = Sum(dtype, kMany);
      if (average != 0) d.operation = Operation::kAverage;
      static uint64_t round = 0;
      for (uint32_t rank : {2u, 1u, 0u}) {
        PushTheirs(rank, round, Pattern(rank, from), d);
      }
      EXPECT_TRUE(Result<uint16_t>() == expected[average]);
      EXPECT_EQ(theirs_.lent, 0);
      ++round;
    }
  }
}

TEST_F(KeySlotTest, ABroadcastFromAWorkersMemoryIsCopied) {
  Declaration d = Sum(DType::kFloat32, kMany);
  d.operation = Operation::kBroadcast;
  d.root_rank = 1;
  const Floats values = Pattern(1, Same);
  Push<float>(0, 0, {}, d);
  PushTheirs(1, 0, values, d);
  Push<float>(2, 0, {}, d);
  EXPECT_EQ(theirs_.lent, 0);  // the root may write there again
  ASSERT_EQ(out_.size(), 3u);
  EXPECT_EQ(out_[1].payload, nullptr);
  ASSERT_EQ(out_[2].payload->size(), kMany * sizeof(float));
  EXPECT_EQ(std::memcmp(out_[2].payload->data(), values.data(),
                        kMany * sizeof(float)),
            0);
}

TEST_F(KeySlotTest, WhoSumsAloneGetsACopy) {
  Join(0);
  Join(2);
  for (Operation operation : {Operation::kSum, Operation::kAverage}) {
    Declaration d = Sum(DType::kFloat32, kMany);
    d.operation = operation;
    static uint64_t round = 0;
    PushTheirs(1, round++, Floats(kMany, 6), d);
    EXPECT_EQ(theirs_.lent, 0);
    EXPECT_EQ(Result(Ranks{1}),
              Floats(kMany, operation == Operation::kSum ? 6 : 2));
  }
}

TEST_F(KeySlotTest, AFailedRoundReturnsWorkersMemory) {
  const Declaration d = Sum(DType::kFloat32, kMany);
  PushTheirs(0, 0, Pattern(0, Same), d);
  PushTheirs(2, 0, Pattern(2, Same), d);
  EXPECT_EQ(theirs_.lent, 2);
  out_.clear();
  slot_.Cancel(0, Cancelled("worker 1 gave up"), &out_);
  EXPECT_EQ(theirs_.lent, 0);
  PushTheirs(1, 0, Pattern(1, Same), d);  // late
  EXPECT_EQ(theirs_.lent, 0);
  PushTheirs(0, 1, Pattern(0, Same), d);
  PushTheirs(1, 1, Floats(3), Sum(DType::kFloat32, 3));  // another shape
  EXPECT_EQ(theirs_.lent, 0);
}

TEST_F(KeySlotTest, ABroadcastCopiesBitsAndSparesItsRoot) {
  Declaration d = Sum();
  d.operation = Operation::kBroadcast;
  d.root_rank = 1;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Push<float>(0, 0, {}, d);
  Push<float>(1, 0, {nan, -0.0f}, d);
  Push<float>(2, 0, {}, d);
  ASSERT_EQ(out_.size(), 3u);
  EXPECT_EQ(out_[1].payload, nullptr);
  const float expected[] = {nan, -0.0f};
  for (uint32_t rank : {0u, 2u}) {
    ASSERT_EQ(out_[rank].payload->size(), sizeof(expected));
    EXPECT_EQ(
        std::memcmp(out_[rank].payload->data(), expected, sizeof(expected)), 0);
  }
}

TEST_F(KeySlotTest, ADisagreementIsAnErrorForAllAndTheNextRoundWorks) {
  Push(0, 0, {1, 1});
  Push<float>(1, 0, {1, 1, 1}, Sum(DType::kFloat32, 3));
  EXPECT_EQ(Errors("\"t\" differs between workers: shape [2] on worker 0 and "
                   "[3] on worker 1"),
            (Ranks{0, 1}));
  Push(2, 0, {1, 1});  // the one that comes late is told the same
  EXPECT_EQ(Errors("shape [2] on worker 0 and [3] on worker 1"), (Ranks{2}));
  for (uint32_t rank = 0; rank < 3; ++rank) Push(rank, 1, {1, 2});
  EXPECT_EQ(Result(), (Floats{3, 6}));
}

TEST_F(KeySlotTest, NobodyPushesARoundTwice) {
  Push(1, 0, {1, 1});
  Push(1, 0, {1, 1});
  EXPECT_EQ(Errors("worker 1 pushed one round twice"), (Ranks{1}));
}

TEST_F(KeySlotTest, WhoLeavesFailsTheRoundsThatNeedIt) {
  Push(0, 0, {1, 1});
  Push(1, 0, {1, 1});
  Push(0, 1, {1, 1});
  out_.clear();
  slot_.WorkerLeft(1, Unavailable("worker 1 left the job"), &out_);
  EXPECT_EQ(Errors("worker 1 left the job"), (Ranks{0}));  // of round 1
  Push(2, 0, {1, 1});  // round 0 has all it needs
  EXPECT_EQ(Result(), (Floats{3, 3}));
  absences_.gone[1] = Unavailable("worker 1 left the job");
  Push(0, 2, {1, 1});
  EXPECT_EQ(Errors("worker 1 left the job"), (Ranks{0}));
}

TEST_F(KeySlotTest, ACancelFailsTheRoundForAll) {
  Push(0, 0, {1, 1});
  out_.clear();
  slot_.Cancel(0, Cancelled("worker 1 gave up"), &out_);
  EXPECT_EQ(Errors("worker 1 gave up"), (Ranks{0}));
  Push(2, 0, {1, 1});
  EXPECT_EQ(Errors("worker 1 gave up"), (Ranks{2}));
}

TEST_F(KeySlotTest, ALossFailsEverythingOnce) {
  Push(0, 0, {1, 1});
  Push(0, 1, {1, 1});
  out_.clear();
  slot_.Fail(Unavailable("server 1 is gone"), &out_);
  EXPECT_EQ(Errors("server 1 is gone"), (Ranks{0, 0}));
  out_.clear();
  slot_.Fail(Unavailable("server 1 is gone"), &out_);
  EXPECT_TRUE(out_.empty());
}

TEST_F(KeySlotTest, NoMemoryIsAnErrorForAll) {
  Push(0, 0, {1, 1});
  Contribution c;
  c.rank = 1;
  c.declaration = std::make_shared<Declaration>(Sum());
  c.lost = true;
  out_.clear();
  slot_.Push(std::move(c), absences_, now_ms_, &out_);
  EXPECT_EQ(Errors("no memory"), (Ranks{0, 1}));
}

TEST_F(KeySlotTest, AStallIsReportedAgainAndAgainAndThenEnds) {
  std::vector<std::string> log;
  const auto check = [&](int64_t after_ms) {
    out_.clear();
    log.clear();
    slot_.CheckStall(absences_, now_ms_ + after_ms, 60000, 150000, &out_, &log);
  };
  Push(0, 0, {1, 1});
  Push(2, 0, {1, 1});
  check(59000);
  EXPECT_TRUE(log.empty());
  check(61000);
  ASSERT_EQ(log.size(), 1u);
  EXPECT_EQ(log[0], "tensor \"t\" has waited 61 s for the workers of rank 1");
  ASSERT_EQ(out_.size(), 2u);
  EXPECT_EQ(out_[0].kind, Kind::kStall);
  check(62000);
  EXPECT_TRUE(log.empty());
  check(122000);
  EXPECT_EQ(log.size(), 1u);
  check(151000);
  EXPECT_EQ(Errors("rank 1 (stall_limit)"), (Ranks{0, 2}));
}

TEST_F(KeySlotTest, ARoundGoesWithoutWhoHasJoined) {
  Join(0);
  uint64_t round = 0;
  for (auto [operation, expected] :
       {std::pair{Operation::kSum, 50.0f},
        std::pair{Operation::kAverage, 50.0f / 3},
        std::pair{Operation::kMin, 20.0f}, std::pair{Operation::kMax, 30.0f}}) {
    Declaration d = Sum();
    d.operation = operation;
    Push<float>(2, round, {30, -30}, d);
    EXPECT_TRUE(out_.empty());
    Push<float>(1, round, {20, 20}, d);
    EXPECT_EQ(Result(Ranks{1, 2})[0], expected);
    ++round;
  }
}

TEST_F(KeySlotTest, WhoJoinsClosesTheRoundThatWaitedForIt) {
  Push(2, 0, {3, 30});
  Push(0, 0, {1, 10});
  Join(1);
  EXPECT_EQ(Result(Ranks{0, 2}), (Floats{4, 40}));
  EXPECT_FALSE(slot_.has_open_round());
  Join(0);
  EXPECT_TRUE(out_.empty());
  Push(2, 1, {3, 30});  // alone
  EXPECT_EQ(Result(Ranks{2}), (Floats{3, 30}));
}

TEST_F(KeySlotTest, WhatWasPushedBeforeAJoinCounts) {
  Push(0, 0, {1, 10});
  Join(0);
  EXPECT_TRUE(out_.empty());
  Push(1, 0, {2, 20});
  Join(2);
  EXPECT_EQ(Result(Ranks{0, 1}), (Floats{3, 30}));
}

TEST_F(KeySlotTest, HalvesWithoutTheFirstRankAreDividedByAll) {
  Declaration d = Sum(DType::kFloat16, 1);
  d.operation = Operation::kAverage;
  Join(0);
  Push<uint16_t>(1, 0, {FloatToFloat16(60000)}, d);
  Push<uint16_t>(2, 0, {FloatToFloat16(30000)}, d);
  EXPECT_EQ(Result<uint16_t>(Ranks{1, 2}),
            std::vector<uint16_t>{FloatToFloat16(30000)});
}

TEST_F(KeySlotTest, WhoHasJoinedHasNoRowsToGather) {
  Declaration d = Sum(DType::kFloat32, 0);
  d.operation = Operation::kAllgather;
  Push<int64_t>(0, 0, {7, 0, 0}, d);
  Push<int64_t>(2, 0, {0, 0, 9}, d);
  Join(1);
  EXPECT_EQ(Result<int64_t>(Ranks{0, 2}), (std::vector<int64_t>{7, 0, 9}));
}

TEST_F(KeySlotTest, ABroadcastNeedsItsRootOnly) {
  Declaration d = Sum();
  d.operation = Operation::kBroadcast;
  d.root_rank = 1;
  Join(0);
  Push<float>(1, 0, {5, 6}, d);
  Push<float>(2, 0, {}, d);
  ASSERT_EQ(out_.size(), 2u);
  EXPECT_EQ(out_[0].payload, nullptr);
  EXPECT_EQ(out_[1].payload->size(), 2 * sizeof(float));
  const std::string words =
      "Broadcast of tensor \"t\": its root, worker 1, has joined";
  Push<float>(2, 1, {}, d);
  Join(1);  // while it is open
  EXPECT_EQ(Errors(words), (Ranks{2}));
  Push<float>(2, 2, {}, d);  // and before
  EXPECT_EQ(Errors(words), (Ranks{2}));
  d.root_rank = 7;  // there is none such: no reason to look for it
  Push<float>(2, 3, {}, d);
}

TEST_F(KeySlotTest, WhoHasJoinedPushesNothing) {
  Join(1);
  Push(1, 0, {1, 1});
  EXPECT_EQ(Errors("worker 1 pushed after it had joined"), (Ranks{1}));
}

TEST_F(KeySlotTest, WhoLeavesAfterItJoinedIsMissedToo) {
  Join(1);
  Push(0, 0, {1, 1});
  out_.clear();
  slot_.WorkerLeft(1, Unavailable("worker 1 left the job"), &out_);
  EXPECT_EQ(Errors("worker 1 left the job"), (Ranks{0}));
  absences_.gone[1] = Unavailable("worker 1 left the job");
  Push(2, 1, {1, 1});
  EXPECT_EQ(Errors("worker 1 left the job"), (Ranks{2}));
}

TEST_F(KeySlotTest, AfterAJoinRoundsAreCountedAnew) {
  // Left over: round 4 failed, round 5 closed without worker 1.
  Push(0, 4, {1, 1});
  slot_.Cancel(4, Cancelled("worker 1 gave up"), &out_);
  Join(1);
  Push(0, 5, {1, 1});
  Push(2, 5, {1, 1});
  absences_.joined.assign(3, false);
  const uint64_t next = uint64_t{1} << 40;
  for (uint64_t round : {next, next + 1, next + 2}) {
    Push(0, round, {1, 1});
    Push(1, round, {2, 2});
    Push(2, round, {3, 3});
    EXPECT_EQ(Result(), (Floats{6, 6}));
    EXPECT_EQ(out_[0].round, round);
  }
}

TEST_F(KeySlotTest, AStallDoesNotBlameWhoHasJoined) {
  std::vector<std::string> log;
  Push(0, 0, {1, 1});
  Join(1);
  slot_.CheckStall(absences_, now_ms_ + 61000, 60000, 150000, &out_, &log);
  ASSERT_EQ(log.size(), 1u);
  EXPECT_EQ(log[0], "tensor \"t\" has waited 61 s for the workers of rank 2");
}

}  // namespace
}  // namespace byteps

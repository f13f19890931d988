#include "csrc/wire/messages.h"

#include <gtest/gtest.h>

#include <limits>

namespace byteps {
namespace {

Declaration Example() {
  Declaration d;
  d.name = "layer/kernel";
  d.dtype = DType::kFloat16;
  d.operation = Operation::kAverage;
  d.shape = {3, 0, 5};
  d.partition_bytes = 4096000;
  d.plan = {7, 3, 1000};
  return d;
}

TEST(Messages, IdsAreThoseOfTheName) {
  // The first eight bytes of SHA-256("abc"), little endian.
  EXPECT_EQ(TensorId("abc"), 0xeacf018fbf1678baull);
  EXPECT_NE(TensorId("a"), TensorId("b"));
}

TEST(Messages, ADeclarationComesBackAsItWas) {
  const Declaration d = Example();
  const std::vector<uint8_t> bytes = Encode(d);
  Result<Declaration> back = DecodeDeclaration(bytes.data(), bytes.size());
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_TRUE(back.value() == d);
  EXPECT_EQ(d.total_bytes(2), 0u);
}

TEST(Messages, EveryCutDeclarationIsRefused) {
  const std::vector<uint8_t> bytes = Encode(Example());
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(DecodeDeclaration(bytes.data(), n).ok()) << n;
  }
  std::vector<uint8_t> longer = bytes;
  longer.push_back(0);
  EXPECT_FALSE(DecodeDeclaration(longer.data(), longer.size()).ok());
}

TEST(Messages, NoByteOfADeclarationCanCrash) {
  const std::vector<uint8_t> bytes = Encode(Example());
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      std::vector<uint8_t> changed = bytes;
      changed[i] = static_cast<uint8_t>(value);
      (void)DecodeDeclaration(changed.data(), changed.size()).ok();
    }
  }
}

TEST(Messages, SenselessDeclarationsAreRefused) {
  const auto refused = [](void (*change)(Declaration*)) {
    Declaration d = Example();
    change(&d);
    const std::vector<uint8_t> bytes = Encode(d);
    return !DecodeDeclaration(bytes.data(), bytes.size()).ok();
  };
  EXPECT_TRUE(refused([](Declaration* d) { d->shape = {-1}; }));
  EXPECT_TRUE(refused([](Declaration* d) { d->partition_bytes = 0; }));
  EXPECT_TRUE(refused([](Declaration* d) { d->dtype = DType(77); }));
  EXPECT_TRUE(refused([](Declaration* d) { d->operation = Operation(99); }));
  EXPECT_TRUE(refused([](Declaration* d) { d->dtype = DType::kInt32; }));
  EXPECT_TRUE(refused([](Declaration* d) {
    d->shape = {std::numeric_limits<int64_t>::max(), 4};
  }));
}

TEST(Messages, DifferencesAreInWords) {
  const Declaration a = Example();
  Declaration b = a;
  EXPECT_EQ(DescribeDifference(a, 0, b, 1), "");
  b.shape = {4};
  EXPECT_EQ(DescribeDifference(a, 0, b, 1),
            "shape [3, 0, 5] on worker 0 and [4] on worker 1");
  b = a;
  b.dtype = DType::kFloat32;
  EXPECT_EQ(DescribeDifference(a, 2, b, 0),
            "type float16 on worker 2 and float32 on worker 0");
  b = a;
  b.operation = Operation::kBroadcast;
  b.root_rank = 1;
  EXPECT_EQ(DescribeDifference(a, 0, b, 1),
            "operation Average on worker 0 and Broadcast from rank 1 on worker "
            "1");
  b = a;
  b.partition_bytes = 16;
  EXPECT_NE(DescribeDifference(a, 0, b, 1).find("partition_bytes"),
            std::string::npos);
  b = a;
  b.plan = PlanSummary();
  EXPECT_EQ(DescribeDifference(a, 0, b, 1),
            "sizes of the tensors that it travels with: 3 of 1000 bytes in all "
            "on worker 0 and none on worker 1");
}

TEST(Messages, RowsOfAnAllgatherMayDiffer) {
  Declaration a = Example();
  a.operation = Operation::kAllgather;
  Declaration b = a;
  b.shape = {3, 7};
  EXPECT_EQ(DescribeDifference(a, 0, b, 1),
            "shape [any, 0, 5] on worker 0 and [any, 7] on worker 1");
  EXPECT_EQ(a.total_bytes(3), 3 * sizeof(int64_t));
}

TEST(Messages, ErrorsKeepCodeAndText) {
  const std::vector<uint8_t> bytes = EncodeError(Unavailable("gone"));
  const Status back = DecodeError(bytes.data(), bytes.size());
  EXPECT_EQ(back.code(), Code::kUnavailable);
  EXPECT_EQ(back.message(), "gone");
  for (size_t n = 0; n < 3; ++n) {
    EXPECT_FALSE(DecodeError(bytes.data(), n).ok());
  }
  const std::vector<uint8_t> fine = EncodeError(OkStatus());
  EXPECT_FALSE(DecodeError(fine.data(), fine.size()).ok());
}

TEST(Messages, LossesNameWhoAndWhy) {
  const std::vector<uint8_t> bytes =
      Encode(LossBody{{Role::kServer, 3}, "server 3 is gone"});
  Result<LossBody> back = DecodeLoss(bytes.data(), bytes.size());
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(ToString(back.value().who), "server 3");
  EXPECT_EQ(back.value().reason, "server 3 is gone");
  EXPECT_FALSE(DecodeLoss(bytes.data(), 2).ok());
}

TEST(Messages, StartsAndTimesComeBack) {
  const std::vector<uint8_t> start = Encode(StartBody{1796232765123456789});
  Result<StartBody> started = DecodeStart(start.data(), start.size());
  ASSERT_TRUE(started.ok());
  EXPECT_EQ(started.value().wall_ns, 1796232765123456789);
  EXPECT_FALSE(DecodeStart(start.data(), 7).ok());
  const std::vector<uint8_t> time = Encode(TimeBody{-3, int64_t{1} << 40});
  Result<TimeBody> told = DecodeTime(time.data(), time.size());
  ASSERT_TRUE(told.ok());
  EXPECT_EQ(told.value().asked_ns, -3);
  EXPECT_EQ(told.value().answered_ns, int64_t{1} << 40);
  EXPECT_FALSE(DecodeTime(time.data(), 8).ok());
}

TEST(Messages, RebalancesComeBackWhole) {
  const RebalanceBody body{7, {1, uint64_t{1} << 60, 0}, {{3, 4}, {~0ull, 5}}};
  const std::vector<uint8_t> bytes = Encode(body);
  Result<RebalanceBody> back = DecodeRebalance(bytes.data(), bytes.size());
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back.value().version, 7u);
  EXPECT_EQ(back.value().shares, body.shares);
  EXPECT_EQ(back.value().rounds, body.rounds);
  const std::vector<uint8_t> none = Encode(RebalanceBody());
  back = DecodeRebalance(none.data(), none.size());
  ASSERT_TRUE(back.ok());
  EXPECT_TRUE(back.value().shares.empty() && back.value().rounds.empty());
}

TEST(Messages, ARebalanceOfAnotherLengthIsRefused) {
  const RebalanceBody body{7, {1, 2}, {{3, 4}}};
  std::vector<uint8_t> bytes = Encode(body);
  const size_t no_rounds = bytes.size() - 16;
  for (size_t n = 0; n < bytes.size(); ++n) {
    const Result<RebalanceBody> back = DecodeRebalance(bytes.data(), n);
    EXPECT_EQ(back.ok(), n == no_rounds) << n;
    if (back.ok()) continue;
    EXPECT_EQ(back.status().code(), Code::kInvalidArgument);
  }
  // More shares than there are bytes.
  bytes[8] = bytes[9] = bytes[10] = bytes[11] = 0xff;
  EXPECT_FALSE(DecodeRebalance(bytes.data(), bytes.size()).ok());
}

}  // namespace
}  // namespace byteps

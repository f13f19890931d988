#include "csrc/base/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace byteps {
namespace {

TEST(Status, HasTensorFlowsNumbers) {
  EXPECT_EQ(static_cast<int>(InvalidArgument("").code()), 3);
  EXPECT_EQ(static_cast<int>(DeadlineExceeded("").code()), 4);
  EXPECT_EQ(static_cast<int>(FailedPrecondition("").code()), 9);
  EXPECT_EQ(static_cast<int>(Unavailable("").code()), 14);
  EXPECT_EQ(static_cast<int>(Cancelled("").code()), 1);
}

TEST(Status, IsOkUnlessSomethingWentWrong) {
  EXPECT_TRUE(OkStatus().ok());
  const Status status = Unavailable("worker 1 is gone");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.message(), "worker 1 is gone");
}

TEST(Result, HoldsAValueOrTheReason) {
  Result<std::unique_ptr<int>> good(std::make_unique<int>(5));
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good.value(), 5);
  const Result<int> bad(InvalidArgument("no"));
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace byteps

#include "csrc/base/log.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

TEST(Log, WritesWholeLinesFromItsLevelOn) {
  ConfigureLog(LogLevel::kWarning, "worker 1");
  testing::internal::CaptureStderr();
  LogInfo("not this");
  LogWarning("this");
  LogError("and this");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "tf_byteps worker 1: this\ntf_byteps worker 1: and this\n");
}

}  // namespace
}  // namespace byteps

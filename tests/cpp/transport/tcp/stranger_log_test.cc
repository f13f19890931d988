#include "csrc/transport/tcp/stranger_log.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

TEST(StrangerLog, PrintsWhatIsNewAtOnce) {
  StrangerLog log;
  EXPECT_EQ(log.Admit("a", 0), "a");
  EXPECT_EQ(log.Admit("b", 0), "b");
}

TEST(StrangerLog, HoldsRepetitionsBackAndCountsThem) {
  StrangerLog log;
  EXPECT_TRUE(log.Admit("a", 1000).has_value());
  for (int i = 0; i < 37; ++i) {
    EXPECT_FALSE(log.Admit("a", 1000 + 100 * i).has_value());
  }
  EXPECT_EQ(log.Admit("a", 11000), "a (and 37 more like this)");
  EXPECT_FALSE(log.Admit("a", 12000).has_value());
  EXPECT_EQ(log.Admit("a", 30000), "a (and 1 more like this)");
  EXPECT_EQ(log.Admit("a", 50000), "a");
}

TEST(StrangerLog, ManyDifferentOnesDoNotFloodNorStayInMemory) {
  StrangerLog log;
  int printed = 0;
  for (int i = 0; i < 100000; ++i) {
    if (log.Admit(std::to_string(i), 5).has_value()) ++printed;
  }
  EXPECT_EQ(printed, 64);
  EXPECT_TRUE(log.Admit("later", 20000).has_value());
}

}  // namespace
}  // namespace byteps

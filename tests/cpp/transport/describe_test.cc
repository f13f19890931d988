#include "csrc/transport/describe.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

TEST(Describe, NamesTheKeyOfWhatHasOne) {
  Header header;
  header.kind = Kind::kPush;
  header.key = {0xabcdef, 12};
  EXPECT_EQ(Describe(header), "push of key 0000000000abcdef/12");
  EXPECT_EQ(Describe(Header()), "ping");
}

TEST(Describe, WordsForUsers) {
  EXPECT_EQ(Seconds(10249), "10.2 s");
  EXPECT_EQ(Seconds(0), "0.0 s");
  EXPECT_EQ(Label({Role::kServer, 3}, "h:1"), "server 3 (h:1)");
}

TEST(Describe, EveryKindHasAName) {
  for (uint16_t kind : {1,  2,  3,  4,  5,  6,  7,  8,  9,  16, 17, 18,
                        19, 20, 21, 22, 23, 24, 25, 32, 33, 34, 35}) {
    EXPECT_STRNE(Name(static_cast<Kind>(kind)), "unknown");
  }
}

}  // namespace
}  // namespace byteps

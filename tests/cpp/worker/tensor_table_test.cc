#include "csrc/worker/tensor_table.h"

#include <gtest/gtest.h>

#include "csrc/wire/messages.h"

namespace byteps {
namespace {

TEST(TensorTable, KnowsATensorByNameAndById) {
  TensorTable table(2);
  auto a = table.Get("a");
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(a.value()->id, TensorId("a"));
  EXPECT_EQ(a.value()->declared.size(), 2u);
  EXPECT_EQ(table.Find(TensorId("a")), a.value());
  EXPECT_EQ(table.Find(TensorId("b")), nullptr);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(table.Get("other " + std::to_string(i)).ok());
  }
  EXPECT_EQ(table.Get("a").value(), a.value());  // entries stay where they are
  EXPECT_EQ(table.size(), 101u);
}

}  // namespace
}  // namespace byteps

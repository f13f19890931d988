#include "csrc/memory/buffer_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

namespace byteps {
namespace {

TEST(BufferPool, GivesAlignedMemoryOfTheSizeAskedFor) {
  BufferPool pool(1 << 20);
  for (size_t bytes : {1u, 7u, 64u, 65u, 4096u, 100000u}) {
    Buffer buffer;
    ASSERT_TRUE(pool.Take(bytes, &buffer));
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    std::memset(buffer.data(), 1, bytes);
  }
}

TEST(BufferPool, UsesMemoryAgain) {
  BufferPool pool(1 << 20);
  uint8_t* first = nullptr;
  {
    Buffer buffer;
    ASSERT_TRUE(pool.Take(5000, &buffer));
    first = buffer.data();
  }
  Buffer again;
  ASSERT_TRUE(pool.Take(5000, &again));
  EXPECT_EQ(again.data(), first);
  Buffer other;
  ASSERT_TRUE(pool.Take(5000, &other));
  EXPECT_NE(other.data(), first);
}

TEST(BufferPool, AMovedBufferGoesBackOnce) {
  BufferPool pool(1 << 20);
  Buffer a;
  ASSERT_TRUE(pool.Take(100, &a));
  uint8_t* data = a.data();
  Buffer b(std::move(a));
  EXPECT_EQ(b.data(), data);
  EXPECT_TRUE(a.empty());  // NOLINT: what is left of it is empty
  b = Buffer();
  Buffer c, d;
  ASSERT_TRUE(pool.Take(100, &c));
  ASSERT_TRUE(pool.Take(100, &d));
  EXPECT_NE(c.data(), d.data());
}

TEST(BufferPool, AnEmptyBufferAlwaysWorks) {
  BufferPool pool(0);
  Buffer buffer;
  EXPECT_TRUE(pool.Take(0, &buffer));
  EXPECT_TRUE(buffer.empty());
}

TEST(BufferPool, TooMuchIsRefused) {
  BufferPool pool(1 << 20);
  Buffer buffer;
  EXPECT_FALSE(pool.Take(size_t{1} << 62, &buffer));
  EXPECT_TRUE(buffer.empty());
}

}  // namespace
}  // namespace byteps

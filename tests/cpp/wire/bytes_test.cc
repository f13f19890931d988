#include "csrc/wire/bytes.h"

#include <gtest/gtest.h>

#include <limits>

namespace byteps {
namespace {

TEST(Bytes, GoldenBytes) {
  ByteWriter writer;
  writer.Number(uint8_t{0xab});
  writer.Number(uint16_t{0x0102});
  writer.Number(uint32_t{0x03040506});
  writer.Number(uint64_t{0x0708090a0b0c0d0e});
  writer.Number(int32_t{-2});
  writer.Text("hé");
  const uint8_t raw[] = {9, 8, 7};
  writer.Raw(raw, sizeof(raw));
  const std::vector<uint8_t> expected = {
      0xab, 0x02, 0x01, 0x06, 0x05, 0x04, 0x03, 0x0e, 0x0d, 0x0c,
      0x0b, 0x0a, 0x09, 0x08, 0x07, 0xfe, 0xff, 0xff, 0xff, 3,
      0,    0,    0,    'h',  0xc3, 0xa9, 9,    8,    7};
  EXPECT_EQ(writer.Take(), expected);
}

template <typename T>
void ExpectRoundTrip(T value) {
  ByteWriter writer;
  writer.Number(value);
  const std::vector<uint8_t> bytes = writer.Take();
  EXPECT_EQ(bytes.size(), sizeof(T));
  ByteReader reader(bytes.data(), bytes.size());
  T back{};
  EXPECT_TRUE(reader.Number(&back));
  EXPECT_EQ(back, value);
  EXPECT_TRUE(reader.finished());
}

TEST(Bytes, NumbersRoundTripAtTheirLimits) {
  ExpectRoundTrip(std::numeric_limits<int8_t>::min());
  ExpectRoundTrip(std::numeric_limits<int16_t>::min());
  ExpectRoundTrip(std::numeric_limits<int32_t>::min());
  ExpectRoundTrip(std::numeric_limits<int64_t>::min());
  ExpectRoundTrip(std::numeric_limits<int64_t>::max());
  ExpectRoundTrip(std::numeric_limits<uint64_t>::max());
}

TEST(ByteReader, EveryTruncationFailsAndStaysFailed) {
  ByteWriter writer;
  writer.Number(uint32_t{7});
  writer.Text("some text");
  writer.Number(uint64_t{8});
  const std::vector<uint8_t> bytes = writer.Take();
  for (size_t length = 0; length <= bytes.size(); ++length) {
    ByteReader reader(bytes.data(), length);
    uint32_t a = 0;
    std::string text;
    uint64_t b = 0;
    const bool good = reader.Number(&a) && reader.Text(&text) &&
                      reader.Number(&b) && reader.finished();
    EXPECT_EQ(good, length == bytes.size());
    if (!good) {
      uint8_t byte = 0;
      EXPECT_FALSE(reader.Number(&byte));
      EXPECT_FALSE(reader.Raw(&byte, 1));
      EXPECT_FALSE(reader.Text(&text));
      EXPECT_FALSE(reader.finished());
    }
  }
}

TEST(ByteReader, ALengthBeyondTheEndAllocatesNothing) {
  const uint8_t bytes[] = {0xff, 0xff, 0xff, 0xff, 'a'};
  ByteReader reader(bytes, sizeof(bytes));
  std::string text;
  EXPECT_FALSE(reader.Text(&text));
  EXPECT_LT(text.capacity(), 100u);
}

TEST(ByteReader, WhatIsLeftOverIsNotFinished) {
  const uint8_t bytes[] = {1, 2};
  ByteReader reader(bytes, sizeof(bytes));
  uint8_t byte = 0;
  EXPECT_TRUE(reader.Number(&byte));
  EXPECT_FALSE(reader.finished());
}

}  // namespace
}  // namespace byteps

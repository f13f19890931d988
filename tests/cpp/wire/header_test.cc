#include "csrc/wire/header.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace byteps {
namespace {

TEST(Header, GoldenBytes) {
  Header header;
  header.kind = Kind::kResult;
  header.flags = 0x0102;
  header.membership_epoch = 0x03040506;
  header.key = {0x0708090a0b0c0d0e, 0x0f101112};
  header.round = 0x131415161718191a;
  header.payload_bytes = 0x1b1c1d1e1f202122;
  header.place = 0x232425262728292a;
  const uint8_t expected[Header::kBytes] = {
      4,    0,                                         // kind
      0x02, 0x01,                                      // flags
      0x06, 0x05, 0x04, 0x03,                          // membership epoch
      0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 0x09, 0x08, 0x07,  // tensor
      0x1a, 0x19, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13,  // round
      0x12, 0x11, 0x10, 0x0f,                          // partition
      0,    0,    0,    0,                             // reserved
      0x22, 0x21, 0x20, 0x1f, 0x1e, 0x1d, 0x1c, 0x1b,  // payload bytes
      0x2a, 0x29, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23,  // place
  };
  uint8_t bytes[Header::kBytes + 1];
  bytes[Header::kBytes] = 0xcc;
  Encode(header, bytes);
  EXPECT_EQ(std::memcmp(bytes, expected, Header::kBytes), 0);
  EXPECT_EQ(bytes[Header::kBytes], 0xcc);

  Result<Header> back = DecodeHeader(expected);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back.value().kind, header.kind);
  EXPECT_EQ(back.value().flags, header.flags);
  EXPECT_EQ(back.value().membership_epoch, header.membership_epoch);
  EXPECT_TRUE(back.value().key == header.key);
  EXPECT_EQ(back.value().round, header.round);
  EXPECT_EQ(back.value().payload_bytes, header.payload_bytes);
  EXPECT_EQ(back.value().place, header.place);
}

TEST(Header, OnlyKnownKindsAreRead) {
  int known = 0;
  for (uint32_t kind = 0; kind < 65536; ++kind) {
    uint8_t bytes[Header::kBytes] = {};
    bytes[0] = static_cast<uint8_t>(kind);
    bytes[1] = static_cast<uint8_t>(kind >> 8);
    if (DecodeHeader(bytes).ok()) ++known;
  }
  EXPECT_EQ(known, 23);
}

TEST(Header, TheErrorNamesTheKind) {
  uint8_t bytes[Header::kBytes] = {};
  bytes[0] = 200;
  Result<Header> header = DecodeHeader(bytes);
  EXPECT_EQ(header.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(header.status().message(), "a message of unknown kind 200");
}

TEST(Key, ComparesBothParts) {
  EXPECT_TRUE((Key{1, 2} == Key{1, 2}));
  EXPECT_FALSE((Key{1, 2} == Key{1, 3}));
  EXPECT_FALSE((Key{1, 2} == Key{2, 2}));
  EXPECT_NE(KeyHash()({1, 2}), KeyHash()({1, 3}));
}

}  // namespace
}  // namespace byteps

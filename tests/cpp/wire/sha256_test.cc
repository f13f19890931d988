// Vectors: FIPS 180-4 examples (NIST), RFC 4231 for HMAC.
#include "csrc/wire/sha256.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace byteps {
namespace {

std::string Hex(const Digest& digest) {
  std::string out;
  char two[3];
  for (const uint8_t byte : digest) {
    std::snprintf(two, sizeof(two), "%02x", byte);
    out += two;
  }
  return out;
}

TEST(Sha256, NistVectors) {
  EXPECT_EQ(Hex(Sha256("")),
            "e3b0c44298fc1c149afbf4c8996fb924"
            "27ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Hex(Sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223"
            "b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(
      Hex(Sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
      "248d6a61d20638b8e5c026930c3e6039"
      "a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Hex(Sha256("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklm"
                       "nhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqr"
                       "stu")),
            "cf5b16a778af8380036ce59e7b049237"
            "0b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(Hex(Sha256(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67"
            "f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, EveryLengthAroundABlock) {
  // SHA-256 over the digests of 'x' repeated 0 to 129 times, as Python's
  // hashlib computes it.
  std::string all;
  for (size_t n = 0; n < 130; ++n) {
    const Digest digest = Sha256(std::string(n, 'x'));
    all.append(digest.begin(), digest.end());
  }
  EXPECT_EQ(Hex(Sha256(all)),
            "6d0989028287a2bd990515b95658bb81"
            "0cf688b69517dfc49e4b3778e0b6d923");
}

TEST(HmacSha256, Rfc4231Vectors) {
  EXPECT_EQ(Hex(HmacSha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b"
            "881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(Hex(HmacSha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c7"
            "5a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(Hex(HmacSha256(std::string(20, '\xaa'), std::string(50, '\xdd'))),
            "773ea91e36800e46854db8ebd09181a7"
            "2959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(Hex(HmacSha256(std::string(131, '\xaa'),
                           "Test Using Larger Than Block-Size Key - Hash Key "
                           "First")),
            "60e431591ee0b67f0d8a26aacbf5b77f"
            "8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(
      Hex(HmacSha256(std::string(131, '\xaa'),
                     "This is a test using a larger than block-size key and a "
                     "larger than block-size data. The key needs to be hashed "
                     "before being used by the HMAC algorithm.")),
      "9b09ffa71b942fcb27635fbcd5b0e944"
      "bfdc63644f0713938a7f51535c3a35e2");
}

TEST(Digest, EqualLooksAtEveryByte) {
  const Digest digest = Sha256("x");
  EXPECT_TRUE(Equal(digest, Sha256("x")));
  for (size_t i = 0; i < digest.size(); ++i) {
    Digest other = digest;
    other[i] ^= 0x80;
    EXPECT_FALSE(Equal(digest, other));
  }
}

}  // namespace
}  // namespace byteps

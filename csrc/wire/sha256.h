// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104), for tensor ids and for the
// handshake; a few dozen bytes at a time, never on a payload.
#ifndef BYTEPS_WIRE_SHA256_H_
#define BYTEPS_WIRE_SHA256_H_

#include <array>
#include <cstdint>
#include <string>

namespace byteps {

using Digest = std::array<uint8_t, 32>;

Digest Sha256(const std::string& data);
Digest HmacSha256(const std::string& key, const std::string& data);
// In constant time.
bool Equal(const Digest& a, const Digest& b);

}  // namespace byteps

#endif  // BYTEPS_WIRE_SHA256_H_

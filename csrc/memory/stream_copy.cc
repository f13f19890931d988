#include "csrc/memory/stream_copy.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace byteps {

#if defined(__x86_64__)
namespace {

// Less may well be read while it would still be in the cache.
constexpr size_t kLeastBytes = 16 << 10;
constexpr size_t kLine = 64;

}  // namespace

void StreamCopy(void* to, const void* from, size_t bytes) {
  if (bytes < kLeastBytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  auto* out = static_cast<uint8_t*>(to);
  const auto* in = static_cast<const uint8_t*>(from);
  const size_t head =
      (kLine - reinterpret_cast<uintptr_t>(out) % kLine) % kLine;
  std::memcpy(out, in, head);
  size_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    auto* line = reinterpret_cast<__m128i*>(out + at);
    const auto* source = reinterpret_cast<const __m128i*>(in + at);
    for (int i = 0; i < 4; ++i) {
      _mm_stream_si128(line + i, _mm_loadu_si128(source + i));
    }
  }
  std::memcpy(out + at, in + at, bytes - at);
  // Who learns that the copy is done has to see it.
  _mm_sfence();
}
#else
void StreamCopy(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}
#endif

}  // namespace byteps

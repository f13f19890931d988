// float16 and bfloat16 as bits, converted without hardware help.
#ifndef BYTEPS_REDUCE_HALF_H_
#define BYTEPS_REDUCE_HALF_H_

#include <cstdint>
#include <cstring>

namespace byteps {

inline float BitsToFloat(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline uint32_t FloatToBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float BFloat16ToFloat(uint16_t half) {
  return BitsToFloat(static_cast<uint32_t>(half) << 16);
}

// Branch-free, so that the compiler makes vectors of it.
inline uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = FloatToBits(value);
  const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const uint32_t nan = bits | 0x400000;  // quiet, and never cut to infinity
  const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
  return static_cast<uint16_t>((is_nan ? nan : rounded) >> 16);
}

inline float Float16ToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 0x1f;
  const uint32_t mantissa = half & 0x3ff;
  if (exponent == 0x1f) {
    // Infinity, or a NaN made quiet as the hardware does.
    const uint32_t quiet = mantissa != 0 ? 0x400000 : 0;
    return BitsToFloat(sign | 0x7f800000 | mantissa << 13 | quiet);
  }
  if (exponent == 0) {
    // Zero and subnormals: an integer times 2^-24, exact in float.
    const float magnitude =
        static_cast<float>(mantissa) * 5.9604644775390625e-8f;
    return BitsToFloat(sign | FloatToBits(magnitude));
  }
  return BitsToFloat(sign | (exponent + 112) << 23 | mantissa << 13);
}

inline uint16_t FloatToFloat16(float value) {
  const uint32_t bits = FloatToBits(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {
    return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  }
  // 65520 and above round to infinity.
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < 0x38800000) {
    // Below the smallest normal: adding 0.5 lines the bits up and rounds.
    const float aligned = BitsToFloat(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (FloatToBits(aligned) - 0x3f000000));
  }
  const uint32_t odd = (magnitude >> 13) & 1;
  const uint32_t rounded = magnitude + 0xfff + odd - (112u << 23);
  return static_cast<uint16_t>(sign | rounded >> 13);
}

}  // namespace byteps

#endif  // BYTEPS_REDUCE_HALF_H_

// Element-wise sums, minima and maxima, at the speed of memory.
//
// Half types are combined in float32: their accumulator holds floats, made by
// Widen and rounded once, at the end, by Narrow. All other types accumulate in
// themselves. Integers wrap around. For bool the sum and the maximum are "or",
// the minimum is "and". A NaN on any worker gives NaN.
//
// Pure functions; SIMD is chosen at run time.
#ifndef BYTEPS_REDUCE_REDUCE_H_
#define BYTEPS_REDUCE_REDUCE_H_

#include <cstddef>
#include <cstdint>

#include "csrc/wire/dtype.h"

namespace byteps {

inline bool IsHalf(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

// The type that sums of `dtype` are kept in.
inline DType AccumulatorType(DType dtype) {
  return IsHalf(dtype) ? DType::kFloat32 : dtype;
}

// accumulator[i] = accumulator[i] (op) input[i]. `accumulator` has elements of
// AccumulatorType(dtype), `input` of dtype. kAverage adds, kAllgather too.
void Accumulate(Operation operation, DType dtype, void* accumulator,
                const void* input, size_t count);

// accumulator[i] = float(input[i]), for half types.
void Widen(DType dtype, float* accumulator, const void* input, size_t count);

// output[i] = accumulator[i] rounded to nearest, ties to even.
void Narrow(DType dtype, void* output, const float* accumulator, size_t count);

// accumulator[i] /= divisor, for floating types.
void Divide(DType dtype, void* accumulator, uint32_t divisor, size_t count);

}  // namespace byteps

#endif  // BYTEPS_REDUCE_REDUCE_H_

#include "csrc/reduce/reduce.h"

#include <cmath>
#include <type_traits>

#include "csrc/reduce/half.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Clones of a function for newer processors, chosen when the library is loaded.
// Sanitizers start too late for the loader's choice.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define BYTEPS_CLONES \
  __attribute__((target_clones("default", "avx2"), optimize("O3")))
#else
#define BYTEPS_CLONES
#endif

namespace byteps {
namespace {

// Signed sums go through the unsigned type, where overflow is defined.
template <typename T, bool = std::is_integral<T>::value>
struct Sum {
  static T Of(T a, T b) { return a + b; }
};
template <typename T>
struct Sum<T, true> {
  static T Of(T a, T b) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(
        static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  }
};

// A NaN compares false, so the operand that may be NaN is the one kept.
template <typename T>
struct Min {
  static T Of(T a, T b) { return b < a || b != b ? b : a; }
};
template <typename T>
struct Max {
  static T Of(T a, T b) { return a < b || b != b ? b : a; }
};

#define BYTEPS_LOOP(name, type, combine)                                 \
  BYTEPS_CLONES void name(type* __restrict a, const type* __restrict b,  \
                          size_t n) {                                    \
    for (size_t i = 0; i < n; ++i) a[i] = combine<type>::Of(a[i], b[i]); \
  }
#define BYTEPS_LOOPS(suffix, type)    \
  BYTEPS_LOOP(Sum##suffix, type, Sum) \
  BYTEPS_LOOP(Min##suffix, type, Min) \
  BYTEPS_LOOP(Max##suffix, type, Max)

BYTEPS_LOOPS(Float32, float)
BYTEPS_LOOPS(Float64, double)
BYTEPS_LOOPS(Int8, int8_t)
BYTEPS_LOOPS(Int16, int16_t)
BYTEPS_LOOPS(Int32, int32_t)
BYTEPS_LOOPS(Int64, int64_t)
BYTEPS_LOOPS(UInt8, uint8_t)
#undef BYTEPS_LOOPS
#undef BYTEPS_LOOP

template <typename T>
using Loop = void (*)(T*, const T*, size_t);

template <typename T>
void Run(Operation operation, void* a, const void* b, size_t n, Loop<T> sum,
         Loop<T> min, Loop<T> max) {
  Loop<T> loop = operation == Operation::kMin   ? min
                 : operation == Operation::kMax ? max
                                                : sum;
  loop(static_cast<T*>(a), static_cast<const T*>(b), n);
}

// Any byte but 0 is true, whatever a peer sends.
void RunBool(Operation operation, void* a, const void* b, size_t n) {
  auto* x = static_cast<uint8_t*>(a);
  const auto* y = static_cast<const uint8_t*>(b);
  if (operation == Operation::kMin) {
    for (size_t i = 0; i < n; ++i) x[i] = (x[i] != 0) & (y[i] != 0);
  } else {
    for (size_t i = 0; i < n; ++i) x[i] = (x[i] != 0) | (y[i] != 0);
  }
}

BYTEPS_CLONES void WidenBFloat16(float* __restrict out,
                                 const uint16_t* __restrict in, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = BFloat16ToFloat(in[i]);
}
BYTEPS_CLONES void NarrowBFloat16(uint16_t* __restrict out,
                                  const float* __restrict in, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = FloatToBFloat16(in[i]);
}
BYTEPS_CLONES void SumBFloat16(float* __restrict a,
                               const uint16_t* __restrict b, size_t n) {
  for (size_t i = 0; i < n; ++i) a[i] += BFloat16ToFloat(b[i]);
}

#if defined(__x86_64__)
bool HasF16c() {
  return __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c");
}

// Each does the multiple of eight and returns how many that was.
__attribute__((target("avx,f16c"))) size_t WidenF16c(float* out,
                                                     const uint16_t* in,
                                                     size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(
                                  reinterpret_cast<const __m128i*>(in + i))));
  }
  return i;
}
__attribute__((target("avx,f16c"))) size_t NarrowF16c(uint16_t* out,
                                                      const float* in,
                                                      size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(out + i),
        _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
  }
  return i;
}
__attribute__((target("avx,f16c"))) size_t SumF16c(float* a, const uint16_t* b,
                                                   size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 x = _mm256_cvtph_ps(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(b + i)));
    _mm256_storeu_ps(a + i, _mm256_add_ps(_mm256_loadu_ps(a + i), x));
  }
  return i;
}
#else
bool HasF16c() { return false; }
size_t WidenF16c(float*, const uint16_t*, size_t) { return 0; }
size_t NarrowF16c(uint16_t*, const float*, size_t) { return 0; }
size_t SumF16c(float*, const uint16_t*, size_t) { return 0; }
#endif

void SumFloat16(float* a, const uint16_t* b, size_t n) {
  for (size_t i = HasF16c() ? SumF16c(a, b, n) : 0; i < n; ++i) {
    a[i] += Float16ToFloat(b[i]);
  }
}

// Minima and maxima of half types are rare: no vectors.
void RunHalf(Operation operation, DType dtype, float* a, const uint16_t* b,
             size_t n) {
  auto widen = dtype == DType::kFloat16 ? Float16ToFloat : BFloat16ToFloat;
  if (operation == Operation::kMin) {
    for (size_t i = 0; i < n; ++i) a[i] = Min<float>::Of(a[i], widen(b[i]));
  } else if (operation == Operation::kMax) {
    for (size_t i = 0; i < n; ++i) a[i] = Max<float>::Of(a[i], widen(b[i]));
  } else if (dtype == DType::kFloat16) {
    SumFloat16(a, b, n);
  } else {
    SumBFloat16(a, b, n);
  }
}

BYTEPS_CLONES void DivideFloat32(float* a, float divisor, size_t n) {
  for (size_t i = 0; i < n; ++i) a[i] /= divisor;
}
BYTEPS_CLONES void DivideFloat64(double* a, double divisor, size_t n) {
  for (size_t i = 0; i < n; ++i) a[i] /= divisor;
}

}  // namespace

void Accumulate(Operation operation, DType dtype, void* a, const void* b,
                size_t n) {
  switch (dtype) {
    case DType::kFloat32:
      return Run<float>(operation, a, b, n, SumFloat32, MinFloat32, MaxFloat32);
    case DType::kFloat64:
      return Run<double>(operation, a, b, n, SumFloat64, MinFloat64,
                         MaxFloat64);
    case DType::kFloat16:
    case DType::kBFloat16:
      return RunHalf(operation, dtype, static_cast<float*>(a),
                     static_cast<const uint16_t*>(b), n);
    case DType::kInt8:
      return Run<int8_t>(operation, a, b, n, SumInt8, MinInt8, MaxInt8);
    case DType::kInt16:
      return Run<int16_t>(operation, a, b, n, SumInt16, MinInt16, MaxInt16);
    case DType::kInt32:
      return Run<int32_t>(operation, a, b, n, SumInt32, MinInt32, MaxInt32);
    case DType::kInt64:
      return Run<int64_t>(operation, a, b, n, SumInt64, MinInt64, MaxInt64);
    case DType::kUInt8:
      return Run<uint8_t>(operation, a, b, n, SumUInt8, MinUInt8, MaxUInt8);
    case DType::kBool:
      return RunBool(operation, a, b, n);
    default:
      return;  // opaque types are never combined, see Supports()
  }
}

void Widen(DType dtype, float* out, const void* in, size_t n) {
  const auto* halves = static_cast<const uint16_t*>(in);
  if (dtype == DType::kBFloat16) return WidenBFloat16(out, halves, n);
  for (size_t i = HasF16c() ? WidenF16c(out, halves, n) : 0; i < n; ++i) {
    out[i] = Float16ToFloat(halves[i]);
  }
}

void Narrow(DType dtype, void* out, const float* in, size_t n) {
  auto* halves = static_cast<uint16_t*>(out);
  if (dtype == DType::kBFloat16) return NarrowBFloat16(halves, in, n);
  for (size_t i = HasF16c() ? NarrowF16c(halves, in, n) : 0; i < n; ++i) {
    halves[i] = FloatToFloat16(in[i]);
  }
}

void Divide(DType dtype, void* a, uint32_t divisor, size_t n) {
  if (dtype == DType::kFloat64) {
    DivideFloat64(static_cast<double*>(a), divisor, n);
  } else {
    DivideFloat32(static_cast<float*>(a), static_cast<float>(divisor), n);
  }
}

}  // namespace byteps

// Element types and operations, with the numbers they have on the wire.
#ifndef BYTEPS_WIRE_DTYPE_H_
#define BYTEPS_WIRE_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace byteps {

enum class DType : uint8_t {
  kFloat32 = 1,
  kFloat64 = 2,
  kFloat16 = 3,
  kBFloat16 = 4,
  kInt8 = 5,
  kInt16 = 6,
  kInt32 = 7,
  kInt64 = 8,
  kUInt8 = 9,
  kBool = 10,
  // Moved by broadcast and allgather, never summed. The width is all that
  // matters then.
  kOpaque1 = 32,
  kOpaque2 = 33,
  kOpaque4 = 34,
  kOpaque8 = 35,
  kOpaque16 = 36,
};

enum class Operation : uint8_t {
  kSum = 1,
  kAverage = 2,
  kMin = 3,
  kMax = 4,
  kBroadcast = 5,
  // First half of an allgather: how many rows each worker has. The payload is
  // int64[workers], whatever the declared type; summed.
  kAllgather = 6,
};

// 0 for a number that is no DType.
size_t ElementBytes(DType dtype);
// TensorFlow's name, "float32"; "unknown" for a number that is no DType.
const char* Name(DType dtype);
// "Sum", "Average", …; "unknown" for a number that is no Operation.
const char* Name(Operation operation);
bool IsFloating(DType dtype);
// Whether servers can combine elements of this type at all.
bool IsReducible(DType dtype);
// Whether the operation has a meaning for the type. Average needs floats;
// broadcast and allgather take all.
bool Supports(Operation operation, DType dtype);

}  // namespace byteps

#endif  // BYTEPS_WIRE_DTYPE_H_

#include "csrc/wire/dtype.h"

namespace byteps {

size_t ElementBytes(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kBool:
    case DType::kOpaque1:
      return 1;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kInt16:
    case DType::kOpaque2:
      return 2;
    case DType::kFloat32:
    case DType::kInt32:
    case DType::kOpaque4:
      return 4;
    case DType::kFloat64:
    case DType::kInt64:
    case DType::kOpaque8:
      return 8;
    case DType::kOpaque16:
      return 16;
  }
  return 0;
}

const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kInt8:
      return "int8";
    case DType::kInt16:
      return "int16";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kUInt8:
      return "uint8";
    case DType::kBool:
      return "bool";
    case DType::kOpaque1:
      return "1-byte elements";
    case DType::kOpaque2:
      return "2-byte elements";
    case DType::kOpaque4:
      return "4-byte elements";
    case DType::kOpaque8:
      return "8-byte elements";
    case DType::kOpaque16:
      return "16-byte elements";
  }
  return "unknown";
}

const char* Name(Operation operation) {
  switch (operation) {
    case Operation::kSum:
      return "Sum";
    case Operation::kAverage:
      return "Average";
    case Operation::kMin:
      return "Min";
    case Operation::kMax:
      return "Max";
    case Operation::kBroadcast:
      return "Broadcast";
    case Operation::kAllgather:
      return "Allgather";
  }
  return "unknown";
}

bool IsFloating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 ||
         dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

bool IsReducible(DType dtype) {
  return ElementBytes(dtype) != 0 && dtype < DType::kOpaque1;
}

bool Supports(Operation operation, DType dtype) {
  switch (operation) {
    case Operation::kSum:
    case Operation::kMin:
    case Operation::kMax:
      return IsReducible(dtype);
    case Operation::kAverage:
      return IsFloating(dtype);
    case Operation::kBroadcast:
    case Operation::kAllgather:
      return ElementBytes(dtype) != 0;
  }
  return false;
}

}  // namespace byteps

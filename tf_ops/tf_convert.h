// Between TensorFlow's types and the core's.
#ifndef BYTEPS_TF_OPS_TF_CONVERT_H_
#define BYTEPS_TF_OPS_TF_CONVERT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/runtime/current_runtime.h"
#include "csrc/runtime/runtime.h"
#include "csrc/wire/dtype.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace byteps {

// Types that can be combined keep their name; all others that are plain bytes
// are known by their width.
inline Result<DType> ToDType(tensorflow::DataType type) {
  switch (type) {
    case tensorflow::DT_FLOAT:
      return DType::kFloat32;
    case tensorflow::DT_DOUBLE:
      return DType::kFloat64;
    case tensorflow::DT_HALF:
      return DType::kFloat16;
    case tensorflow::DT_BFLOAT16:
      return DType::kBFloat16;
    case tensorflow::DT_INT8:
      return DType::kInt8;
    case tensorflow::DT_INT16:
      return DType::kInt16;
    case tensorflow::DT_INT32:
      return DType::kInt32;
    case tensorflow::DT_INT64:
      return DType::kInt64;
    case tensorflow::DT_UINT8:
      return DType::kUInt8;
    case tensorflow::DT_BOOL:
      return DType::kBool;
    default:
      break;
  }
  if (tensorflow::DataTypeCanUseMemcpy(type)) {
    switch (tensorflow::DataTypeSize(type)) {
      case 1:
        return DType::kOpaque1;
      case 2:
        return DType::kOpaque2;
      case 4:
        return DType::kOpaque4;
      case 8:
        return DType::kOpaque8;
      case 16:
        return DType::kOpaque16;
    }
  }
  return InvalidArgument("tensors of type " + tensorflow::DataTypeString(type) +
                         " cannot be sent; expected a type of plain numbers");
}

inline absl::Status ToTensorFlow(const Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.code()),
                      status.message());
}

inline std::vector<int64_t> ToDimensions(const tensorflow::TensorShape& s) {
  std::vector<int64_t> dimensions;
  for (int i = 0; i < s.dims(); ++i) dimensions.push_back(s.dim_size(i));
  return dimensions;
}

inline void* DataOf(tensorflow::Tensor* tensor) {
  return const_cast<char*>(tensor->tensor_data().data());
}

// Fails the op and returns null if this process has no runtime.
inline std::shared_ptr<Runtime> RuntimeFor(
    tensorflow::OpKernelContext* context) {
  std::shared_ptr<Runtime> runtime = CurrentRuntime();
  if (runtime == nullptr) {
    context->SetStatus(absl::FailedPreconditionError(
        context->op_kernel().type_string() +
        " needs tf_byteps to be initialised in this process: call "
        "tf_byteps.init() or make a BytePSStrategy first, and no shutdown() "
        "before"));
  }
  return runtime;
}

}  // namespace byteps

#endif  // BYTEPS_TF_OPS_TF_CONVERT_H_

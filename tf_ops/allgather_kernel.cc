#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/register_types.h"
#include "tf_ops/tf_convert.h"

namespace byteps {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

class AllgatherKernel : public tensorflow::AsyncOpKernel {
 public:
  explicit AllgatherKernel(OpKernelConstruction* c) : AsyncOpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("tensor_name", &name_));
    OP_REQUIRES_OK(c, c->GetAttr("priority", &priority_));
  }

  void ComputeAsync(OpKernelContext* c, DoneCallback done) override {
    std::shared_ptr<Runtime> runtime = RuntimeFor(c);
    if (runtime == nullptr) return done();
    Result<DType> dtype = ToDType(c->input_dtype(1));
    OP_REQUIRES_ASYNC(c, dtype.ok(), ToTensorFlow(dtype.status()), done);
    const Tensor& input = c->input(1);
    OP_REQUIRES_ASYNC(
        c, input.dims() >= 1,
        absl::InvalidArgumentError(
            "allgather of tensor \"" + name_ +
            "\": expected at least one dimension to concatenate along. "
            "Received: a scalar"),
        done);
    AllgatherRequest request;
    request.name = name_;
    request.dtype = dtype.value();
    request.shape = ToDimensions(input.shape());
    request.priority = priority_;
    request.input = input.tensor_data().data();
    // Called once, when the number of rows of every worker is known.
    request.allocate = [c](const std::vector<int64_t>& rows) -> Result<void*> {
      tensorflow::TensorShape shape = c->input(1).shape();
      int64_t total = 0;
      for (int64_t r : rows) total += r;
      shape.set_dim(0, total);
      Tensor* output = nullptr;
      absl::Status status = c->allocate_output(0, shape, &output);
      if (!status.ok()) {
        return ResourceExhausted(std::string(status.message()));
      }
      return DataOf(output);
    };
    runtime->Allgather(std::move(request), [c, done](Status status) {
      if (!status.ok()) c->SetStatus(ToTensorFlow(status));
      done();
    });
  }

 private:
  std::string name_;
  int64_t priority_ = 0;
};

#define REGISTER(type)                                        \
  REGISTER_KERNEL_BUILDER(Name("TfByteps>Allgather")          \
                              .Device(tensorflow::DEVICE_CPU) \
                              .TypeConstraint<type>("T"),     \
                          AllgatherKernel)
TF_CALL_POD_TYPES(REGISTER);
TF_CALL_float8_e5m2(REGISTER);
TF_CALL_float8_e4m3fn(REGISTER);
#undef REGISTER

}  // namespace
}  // namespace byteps

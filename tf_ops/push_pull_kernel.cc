#include <memory>
#include <string>
#include <utility>

#include "tf_ops/tf_convert.h"

namespace byteps {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

// Hands the tensor to the runtime and returns; the runtime completes the op
// from one of its own threads. The context holds input and output until then.
class PushPullKernel : public tensorflow::AsyncOpKernel {
 public:
  explicit PushPullKernel(OpKernelConstruction* c) : AsyncOpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("tensor_name", &name_));
    OP_REQUIRES_OK(c, c->GetAttr("priority", &priority_));
    std::string plan;
    OP_REQUIRES_OK(c, c->GetAttr("plan", &plan));
    Result<TensorPlan> decoded = DecodeTensorPlan(plan);
    OP_REQUIRES(c, decoded.ok(), ToTensorFlow(decoded.status()));
    if (!plan.empty()) {
      plan_ = std::make_shared<const TensorPlan>(std::move(decoded.value()));
    }
    std::string operation;
    OP_REQUIRES_OK(c, c->GetAttr("operation", &operation));
    for (Operation o : {Operation::kSum, Operation::kAverage, Operation::kMin,
                        Operation::kMax}) {
      if (operation == Name(o)) operation_ = o;
    }
  }

  void ComputeAsync(OpKernelContext* c, DoneCallback done) override {
    std::shared_ptr<Runtime> runtime = RuntimeFor(c);
    if (runtime == nullptr) return done();
    Result<DType> dtype = ToDType(c->input_dtype(1));
    OP_REQUIRES_ASYNC(c, dtype.ok(), ToTensorFlow(dtype.status()), done);
    Tensor* output = nullptr;
    // Before any copy of the input is taken, or the buffer counts as shared.
    OP_REQUIRES_OK_ASYNC(c,
                         c->forward_input_or_allocate_output(
                             {1}, 0, c->input(1).shape(), &output),
                         done);
    PushPullRequest request;
    request.name = name_;
    request.dtype = dtype.value();
    request.operation = operation_;
    request.shape = ToDimensions(output->shape());
    request.priority = priority_;
    request.plan = plan_;
    request.input = c->input(1).tensor_data().data();
    request.output = DataOf(output);
    runtime->PushPull(std::move(request), [c, done](Status status) {
      if (!status.ok()) c->SetStatus(ToTensorFlow(status));
      done();
    });
  }

 private:
  std::string name_;
  int64_t priority_ = 0;
  Operation operation_ = Operation::kSum;
  std::shared_ptr<const TensorPlan> plan_;  // null: none
};

// One registration per type: the shape function is not called for eager
// tensors, so nothing else would keep, say, a string from the kernel.
#define REGISTER(type)                                        \
  REGISTER_KERNEL_BUILDER(Name("TfByteps>PushPull")           \
                              .Device(tensorflow::DEVICE_CPU) \
                              .TypeConstraint<type>("T"),     \
                          PushPullKernel)
REGISTER(float);
REGISTER(double);
REGISTER(Eigen::half);
REGISTER(tensorflow::bfloat16);
REGISTER(int8_t);
REGISTER(int16_t);
REGISTER(int32_t);
REGISTER(int64_t);
REGISTER(uint8_t);
REGISTER(bool);
#undef REGISTER

}  // namespace
}  // namespace byteps

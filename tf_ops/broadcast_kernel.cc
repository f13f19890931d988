#include <cstring>
#include <string>
#include <utility>

#include "tensorflow/core/framework/register_types.h"
#include "tf_ops/tf_convert.h"

namespace byteps {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

class BroadcastKernel : public tensorflow::AsyncOpKernel {
 public:
  explicit BroadcastKernel(OpKernelConstruction* c) : AsyncOpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("tensor_name", &name_));
    OP_REQUIRES_OK(c, c->GetAttr("priority", &priority_));
    OP_REQUIRES_OK(c, c->GetAttr("root_rank", &root_rank_));
  }

  void ComputeAsync(OpKernelContext* c, DoneCallback done) override {
    std::shared_ptr<Runtime> runtime = RuntimeFor(c);
    if (runtime == nullptr) return done();
    const int64_t workers = runtime->config().num_workers();
    OP_REQUIRES_ASYNC(
        c, root_rank_ >= 0 && root_rank_ < workers,
        absl::InvalidArgumentError(
            "broadcast of tensor \"" + name_ + "\": root_rank must be in [0, " +
            std::to_string(workers) +
            "). Received: " + std::to_string(root_rank_)),
        done);
    Result<DType> dtype = ToDType(c->input_dtype(1));
    OP_REQUIRES_ASYNC(c, dtype.ok(), ToTensorFlow(dtype.status()), done);
    Tensor* output = nullptr;
    OP_REQUIRES_OK_ASYNC(c,
                         c->forward_input_or_allocate_output(
                             {1}, 0, c->input(1).shape(), &output),
                         done);
    PushPullRequest request;
    request.name = name_;
    request.dtype = dtype.value();
    request.operation = Operation::kBroadcast;
    request.root_rank = static_cast<uint32_t>(root_rank_);
    request.shape = ToDimensions(output->shape());
    request.priority = priority_;
    request.input = c->input(1).tensor_data().data();
    request.output = DataOf(output);
    const bool is_root = runtime->config().self.index == request.root_rank;
    if (is_root && request.input != request.output &&
        output->TotalBytes() > 0) {
      std::memcpy(request.output, request.input, output->TotalBytes());
    }
    runtime->PushPull(std::move(request), [c, done](Status status) {
      if (!status.ok()) c->SetStatus(ToTensorFlow(status));
      done();
    });
  }

 private:
  std::string name_;
  int64_t priority_ = 0;
  int64_t root_rank_ = 0;
};

#define REGISTER(type)                                        \
  REGISTER_KERNEL_BUILDER(Name("TfByteps>Broadcast")          \
                              .Device(tensorflow::DEVICE_CPU) \
                              .TypeConstraint<type>("T"),     \
                          BroadcastKernel)
TF_CALL_POD_TYPES(REGISTER);
TF_CALL_float8_e5m2(REGISTER);
TF_CALL_float8_e4m3fn(REGISTER);
#undef REGISTER

}  // namespace
}  // namespace byteps

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_handle.h"

namespace byteps {
namespace {

class TensorHandleKernel : public tensorflow::OpKernel {
 public:
  explicit TensorHandleKernel(tensorflow::OpKernelConstruction* c)
      : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("tensor_name", &name_));
  }

  void Compute(tensorflow::OpKernelContext* c) override {
    tensorflow::Tensor* output = nullptr;
    OP_REQUIRES_OK(c, c->allocate_output(0, {}, &output));
    tensorflow::ResourceHandle handle;
    handle.set_device(c->device()->attributes().name());
    handle.set_container("tf_byteps");
    handle.set_name(name_);
    handle.set_maybe_type_name("tf_byteps tensor");
    output->scalar<tensorflow::ResourceHandle>()() = handle;
  }

 private:
  std::string name_;
};

REGISTER_KERNEL_BUILDER(
    Name("TfByteps>TensorHandle").Device(tensorflow::DEVICE_CPU),
    TensorHandleKernel);

}  // namespace
}  // namespace byteps

// The operations as a graph sees them: names, types, shapes.
//
// All are stateful and take a resource handle, one per tensor name, made once
// outside the graph: TensorFlow then keeps every call, folds and merges none,
// and orders only the calls on one tensor. Communication they are called so
// that TensorFlow passes on what they say of a lost process as it is.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace byteps {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

absl::Status SameShape(InferenceContext* c) {
  c->set_output(0, c->input(1));
  return absl::OkStatus();
}

// The rows of all workers: the first dimension is known at run time only.
absl::Status AnyRows(InferenceContext* c) {
  ShapeHandle in;
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(1), 1, &in));
  ShapeHandle out;
  TF_RETURN_IF_ERROR(c->ReplaceDim(in, 0, c->UnknownDim(), &out));
  c->set_output(0, out);
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("TfByteps>TensorHandle")
    .Attr("tensor_name: string")
    .Output("handle: resource")
    .SetIsStateful()
    .SetShapeFn(::tensorflow::shape_inference::ScalarShape)
    .Doc("The handle that stands for the tensor of that name on all workers.");

REGISTER_OP("TfByteps>PushPull")
    .Input("handle: resource")
    .Input("tensor: T")
    .Output("output: T")
    .Attr("T: type")
    .Attr("tensor_name: string")
    .Attr("operation: {'Sum', 'Average', 'Min', 'Max'}")
    .Attr("priority: int = 0")
    .Attr("plan: string = ''")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(SameShape)
    .Doc("Combines the tensor of all workers.");

REGISTER_OP("TfByteps>Broadcast")
    .Input("handle: resource")
    .Input("tensor: T")
    .Output("output: T")
    .Attr("T: type")
    .Attr("tensor_name: string")
    .Attr("root_rank: int")
    .Attr("priority: int = 0")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(SameShape)
    .Doc("The tensor of one worker, on all workers.");

REGISTER_OP("TfByteps>Allgather")
    .Input("handle: resource")
    .Input("tensor: T")
    .Output("output: T")
    .Attr("T: type")
    .Attr("tensor_name: string")
    .Attr("priority: int = 0")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(AnyRows)
    .Doc("The tensors of all workers, one behind the other in rank order.");

}  // namespace byteps

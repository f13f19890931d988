// The Python module tf_byteps._core. Knows no TensorFlow: a server process
// never loads it.
#include <pybind11/pybind11.h>

#include "csrc/bindings/status_error.h"

namespace byteps {

void BindPlacement(pybind11::module_& module);
void BindRuntime(pybind11::module_& module);

PYBIND11_MODULE(_core, module) {
  module.doc() = "The native core of tf_byteps.";
  BindStatusError(module);
  BindPlacement(module);
  BindRuntime(module);
}

}  // namespace byteps

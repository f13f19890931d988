#include "csrc/bindings/status_error.h"

namespace byteps {
namespace {

// The exception type lives as long as the interpreter.
PyObject* g_status_error = nullptr;

}  // namespace

void BindStatusError(pybind11::module_& module) {
  g_status_error = PyErr_NewExceptionWithDoc(
      "tf_byteps._core.StatusError",
      "An error of the core; args are (code, message).", nullptr, nullptr);
  module.add_object("StatusError", pybind11::handle(g_status_error));
}

void Raise(const Status& status) {
  PyErr_SetObject(
      g_status_error,
      pybind11::make_tuple(static_cast<int>(status.code()), status.message())
          .ptr());
  throw pybind11::error_already_set();
}

}  // namespace byteps

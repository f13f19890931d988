// How a Status crosses into Python: StatusError with args (code, message).
#ifndef BYTEPS_BINDINGS_STATUS_ERROR_H_
#define BYTEPS_BINDINGS_STATUS_ERROR_H_

#include <pybind11/pybind11.h>

#include "csrc/base/status.h"

namespace byteps {

void BindStatusError(pybind11::module_& module);

// Raises StatusError in Python. With the GIL.
[[noreturn]] void Raise(const Status& status);

}  // namespace byteps

#endif  // BYTEPS_BINDINGS_STATUS_ERROR_H_

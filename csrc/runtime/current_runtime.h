// The one process-wide slot: TensorFlow builds kernels without a user argument,
// so a kernel finds its runtime here. Set by the Python module.
#ifndef BYTEPS_RUNTIME_CURRENT_RUNTIME_H_
#define BYTEPS_RUNTIME_CURRENT_RUNTIME_H_

#include <memory>

namespace byteps {

class Runtime;

// Null before the start and after the end. Shared, so that a kernel that is
// under way keeps its runtime alive through a concurrent shutdown.
std::shared_ptr<Runtime> CurrentRuntime();
void SetCurrentRuntime(std::shared_ptr<Runtime> runtime);

}  // namespace byteps

#endif  // BYTEPS_RUNTIME_CURRENT_RUNTIME_H_

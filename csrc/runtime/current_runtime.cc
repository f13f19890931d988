#include "csrc/runtime/current_runtime.h"

#include <mutex>
#include <utility>

#include "csrc/runtime/runtime.h"

namespace byteps {
namespace {

std::mutex& Mutex() {
  static std::mutex& mutex = *new std::mutex();
  return mutex;
}

// Never destroyed: at exit other threads may still look.
std::shared_ptr<Runtime>& Slot() {  // guarded by Mutex()
  static auto& slot = *new std::shared_ptr<Runtime>();
  return slot;
}

}  // namespace

std::shared_ptr<Runtime> CurrentRuntime() {
  std::lock_guard<std::mutex> lock(Mutex());
  return Slot();
}

void SetCurrentRuntime(std::shared_ptr<Runtime> runtime) {
  // The old one is destroyed outside of the lock: it joins threads.
  {
    std::lock_guard<std::mutex> lock(Mutex());
    Slot().swap(runtime);
  }
}

}  // namespace byteps

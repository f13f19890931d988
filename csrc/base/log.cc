#include "csrc/base/log.h"

#include <unistd.h>

#include <atomic>
#include <mutex>

namespace byteps {
namespace {

std::atomic<int> g_level{static_cast<int>(LogLevel::kWarning)};
std::mutex g_name_mutex;
std::string& Name() {  // guarded by g_name_mutex
  static std::string& name = *new std::string();
  return name;
}

}  // namespace

void ConfigureLog(LogLevel level, const std::string& name) {
  g_level.store(static_cast<int>(level), std::memory_order_relaxed);
  std::lock_guard<std::mutex> lock(g_name_mutex);
  Name() = name;
}

void Log(LogLevel level, const std::string& message) {
  if (static_cast<int>(level) < g_level.load(std::memory_order_relaxed)) return;
  std::string line = "tf_byteps ";
  {
    std::lock_guard<std::mutex> lock(g_name_mutex);
    line += Name();
  }
  line += ": ";
  line += message;
  line += '\n';
  // One write keeps the line whole; a closed standard error is nobody's loss.
  ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  (void)written;
}

}  // namespace byteps

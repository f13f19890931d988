// One-line log messages on standard error: "tf_byteps worker 1: …". Whole lines
// only, so several processes may share a terminal.
//
// Thread-safe. The level and the name are set once by the runtime at start.
#ifndef BYTEPS_BASE_LOG_H_
#define BYTEPS_BASE_LOG_H_

#include <string>

namespace byteps {

enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

// `name` stands behind "tf_byteps " in every later line.
void ConfigureLog(LogLevel level, const std::string& name);
void Log(LogLevel level, const std::string& message);

inline void LogDebug(const std::string& m) { Log(LogLevel::kDebug, m); }
inline void LogInfo(const std::string& m) { Log(LogLevel::kInfo, m); }
inline void LogWarning(const std::string& m) { Log(LogLevel::kWarning, m); }
inline void LogError(const std::string& m) { Log(LogLevel::kError, m); }

}  // namespace byteps

#endif  // BYTEPS_BASE_LOG_H_

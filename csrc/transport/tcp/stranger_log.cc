#include "csrc/transport/tcp/stranger_log.h"

namespace byteps {
namespace {

constexpr int64_t kQuietMs = 10000;
constexpr size_t kMaxEntries = 64;

}  // namespace

std::optional<std::string> StrangerLog::Admit(const std::string& sentence,
                                              int64_t now_ms) {
  auto it = entries_.find(sentence);
  if (it == entries_.end()) {
    // Strangers choose what they say; they must not fill our memory.
    if (entries_.size() >= kMaxEntries) {
      for (auto old = entries_.begin(); old != entries_.end();) {
        old = now_ms - old->second.printed_ms >= kQuietMs ? entries_.erase(old)
                                                          : std::next(old);
      }
      if (entries_.size() >= kMaxEntries) return std::nullopt;
    }
    entries_[sentence].printed_ms = now_ms;
    return sentence;
  }
  Entry& entry = it->second;
  if (now_ms - entry.printed_ms < kQuietMs) {
    ++entry.held_back;
    return std::nullopt;
  }
  std::string line = sentence;
  if (entry.held_back > 0) {
    line += " (and " + std::to_string(entry.held_back) + " more like this)";
  }
  entry = Entry{now_ms, 0};
  return line;
}

}  // namespace byteps

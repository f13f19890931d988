// Warnings about connections from outside the job: one line each, but one line
// in ten seconds for what repeats itself, however often.
//
// Owned and called by the transport's thread.
#ifndef BYTEPS_TRANSPORT_TCP_STRANGER_LOG_H_
#define BYTEPS_TRANSPORT_TCP_STRANGER_LOG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace byteps {

class StrangerLog {
 public:
  // The line to print now, if any. `sentence` is what makes two alike, and is
  // to hold no port.
  std::optional<std::string> Admit(const std::string& sentence, int64_t now_ms);

 private:
  struct Entry {
    int64_t printed_ms = 0;
    uint64_t held_back = 0;
  };
  std::map<std::string, Entry> entries_;
};

}  // namespace byteps

#endif  // BYTEPS_TRANSPORT_TCP_STRANGER_LOG_H_

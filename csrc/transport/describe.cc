#include "csrc/transport/describe.h"

#include <cinttypes>
#include <cstdio>

namespace byteps {

const char* Name(Kind kind) {
  switch (kind) {
    case Kind::kDeclare:
      return "declaration";
    case Kind::kPush:
      return "push";
    case Kind::kCancel:
      return "cancellation";
    case Kind::kResult:
      return "result";
    case Kind::kRoundError:
      return "round error";
    case Kind::kStall:
      return "stall warning";
    case Kind::kJoin:
      return "join";
    case Kind::kJoined:
      return "end of a join";
    case Kind::kJoinError:
      return "join error";
    case Kind::kReady:
      return "ready";
    case Kind::kStart:
      return "start";
    case Kind::kGoodbye:
      return "goodbye";
    case Kind::kLost:
      return "report of a loss";
    case Kind::kAskTime:
      return "question for the time";
    case Kind::kTime:
      return "time";
    case Kind::kPropose:
      return "proposal of shares";
    case Kind::kPrepare:
      return "question before a rebalance";
    case Kind::kPrepared:
      return "answer before a rebalance";
    case Kind::kCommit:
      return "rebalance";
    case Kind::kPing:
      return "ping";
    case Kind::kShare:
      return "offer of shared memory";
    case Kind::kShared:
      return "consent to share memory";
    case Kind::kReturned:
      return "return of memory";
  }
  return "unknown";
}

std::string Describe(const Header& header) {
  std::string text = Name(header.kind);
  if (header.key.tensor != 0) {
    char key[48];
    std::snprintf(key, sizeof(key), " of key %016" PRIx64 "/%" PRIu32,
                  header.key.tensor, header.key.partition);
    text += key;
  }
  return text;
}

std::string Seconds(int64_t ms) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", static_cast<double>(ms) / 1000);
  return text;
}

std::string Label(const ProcessName& name, const std::string& address) {
  return ToString(name) + " (" + address + ")";
}

}  // namespace byteps

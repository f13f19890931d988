// Who is in the job, as one process sees it. A state machine without I/O,
// clock or thread.
//
//   absent ──► joined ──► left    said goodbye
//                 └─────► lost    died or was cut off
#ifndef BYTEPS_CONTROL_MEMBERSHIP_H_
#define BYTEPS_CONTROL_MEMBERSHIP_H_

#include <cstdint>
#include <map>
#include <vector>

#include "csrc/base/config.h"

namespace byteps {

// The version of a membership that never changes: the job's first.
constexpr uint32_t kFirstMembershipEpoch = 1;

class Membership {
 public:
  explicit Membership(const Config& config);

  // Each returns whether the state changed; the first end of a process stands.
  bool Join(const ProcessName& who);
  bool Leave(const ProcessName& who);
  bool Lose(const ProcessName& who);

  // False for a process that the cluster does not have.
  bool Knows(const ProcessName& who) const { return states_.count(who) > 0; }
  bool IsGone(const ProcessName& who) const;
  // Of `wanted`, those that have not joined yet.
  std::vector<ProcessName> Absent(const std::vector<ProcessName>& wanted) const;
  // No worker but self is left.
  bool AllOtherWorkersGone() const;

 private:
  enum class State { kAbsent, kJoined, kLeft, kLost };
  bool End(const ProcessName& who, State end);

  const ProcessName self_;
  std::map<ProcessName, State> states_;  // without self
};

}  // namespace byteps

#endif  // BYTEPS_CONTROL_MEMBERSHIP_H_

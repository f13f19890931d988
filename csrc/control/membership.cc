#include "csrc/control/membership.h"

#include "csrc/control/rendezvous.h"

namespace byteps {

Membership::Membership(const Config& config) : self_(config.self) {
  for (const ProcessName& p : AllProcesses(config)) {
    if (p != self_) states_[p] = State::kAbsent;
  }
}

bool Membership::Join(const ProcessName& who) {
  auto it = states_.find(who);
  if (it == states_.end() || it->second != State::kAbsent) return false;
  it->second = State::kJoined;
  return true;
}

bool Membership::Leave(const ProcessName& who) {
  return End(who, State::kLeft);
}

bool Membership::Lose(const ProcessName& who) { return End(who, State::kLost); }

bool Membership::End(const ProcessName& who, State end) {
  auto it = states_.find(who);
  if (it == states_.end() || IsGone(who)) return false;
  it->second = end;
  return true;
}

bool Membership::IsGone(const ProcessName& who) const {
  auto it = states_.find(who);
  return it != states_.end() &&
         (it->second == State::kLeft || it->second == State::kLost);
}

std::vector<ProcessName> Membership::Absent(
    const std::vector<ProcessName>& wanted) const {
  std::vector<ProcessName> absent;
  for (const ProcessName& p : wanted) {
    auto it = states_.find(p);
    if (it != states_.end() && it->second == State::kAbsent) {
      absent.push_back(p);
    }
  }
  return absent;
}

bool Membership::AllOtherWorkersGone() const {
  for (const auto& entry : states_) {
    if (entry.first.role == Role::kWorker && !IsGone(entry.first)) return false;
  }
  return true;
}

}  // namespace byteps

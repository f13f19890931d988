#include "csrc/control/coordinator.h"

#include "csrc/control/rendezvous.h"

namespace byteps {

Coordinator::Coordinator(const Config& config) {
  for (const ProcessName& p : AllProcesses(config)) not_ready_.insert(p);
}

bool Coordinator::Ready(const ProcessName& who) {
  return not_ready_.erase(who) > 0 && not_ready_.empty();
}

std::vector<ProcessName> Coordinator::NotReady() const {
  return {not_ready_.begin(), not_ready_.end()};
}

}  // namespace byteps

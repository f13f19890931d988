#include "csrc/control/rendezvous.h"

namespace byteps {

std::vector<ProcessName> AllProcesses(const Config& config) {
  std::vector<ProcessName> all;
  for (uint32_t i = 0; i < config.servers.size(); ++i) {
    all.push_back({Role::kServer, i});
  }
  for (uint32_t i = 0; i < config.workers.size(); ++i) {
    all.push_back({Role::kWorker, i});
  }
  return all;
}

std::vector<ProcessName> RequiredPeers(const Config& config) {
  const ProcessName self = config.self;
  std::vector<ProcessName> peers;
  for (const ProcessName& other : AllProcesses(config)) {
    if (other == self) continue;
    const bool data = (other.role == Role::kWorker && config.serves(self)) ||
                      (self.role == Role::kWorker && config.serves(other));
    const bool control =
        other == config.coordinator() || self == config.coordinator();
    if (data || control) peers.push_back(other);
  }
  return peers;
}

std::string WaitingText(
    const Config& config, const std::vector<ProcessName>& missing,
    const std::function<std::string(const ProcessName&)>& progress) {
  constexpr size_t kShown = 8;
  std::string text = "waiting for ";
  for (size_t i = 0; i < missing.size() && i < kShown; ++i) {
    const ProcessName& p = missing[i];
    const size_t count =
        p.role == Role::kWorker ? config.workers.size() : config.servers.size();
    if (i > 0) text += ", ";
    text += ToString(p) + " of " + std::to_string(count) + " at " +
            config.address(p);
    const std::string seen = progress(p);
    if (!seen.empty()) text += " (" + seen + ")";
  }
  if (missing.size() > kShown) {
    text += " and " + std::to_string(missing.size() - kShown) + " more";
  }
  return text;
}

}  // namespace byteps

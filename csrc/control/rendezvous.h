// Who must be connected to whom before a job starts. Pure: decides, does no
// I/O.
#ifndef BYTEPS_CONTROL_RENDEZVOUS_H_
#define BYTEPS_CONTROL_RENDEZVOUS_H_

#include <functional>
#include <string>
#include <vector>

#include "csrc/base/config.h"

namespace byteps {

// All processes of the job: dedicated servers, then workers.
std::vector<ProcessName> AllProcesses(const Config& config);

// The processes that config.self keeps a connection with: every worker with
// every server, and everybody with the coordinator. Without self.
std::vector<ProcessName> RequiredPeers(const Config& config);

// Of two processes the later dials; so each pair has one connection.
inline bool ShouldDial(const ProcessName& self, const ProcessName& other) {
  return other < self;
}

// "waiting for server 1 of 2 at host:port (connection refused) and worker …".
// `progress` tells what was last seen of a process, empty for nothing.
std::string WaitingText(
    const Config& config, const std::vector<ProcessName>& missing,
    const std::function<std::string(const ProcessName&)>& progress);

}  // namespace byteps

#endif  // BYTEPS_CONTROL_RENDEZVOUS_H_

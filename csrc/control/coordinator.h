// Decides for the whole job when it starts. One process, the first server,
// has it. A state machine without I/O, clock or thread.
#ifndef BYTEPS_CONTROL_COORDINATOR_H_
#define BYTEPS_CONTROL_COORDINATOR_H_

#include <set>
#include <vector>

#include "csrc/base/config.h"

namespace byteps {

class Coordinator {
 public:
  explicit Coordinator(const Config& config);

  // `who` has all the connections it needs. True exactly once: when everybody
  // is ready and the job starts.
  bool Ready(const ProcessName& who);

  std::vector<ProcessName> NotReady() const;

 private:
  std::set<ProcessName> not_ready_;
};

}  // namespace byteps

#endif  // BYTEPS_CONTROL_COORDINATOR_H_

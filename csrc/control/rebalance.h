// Agrees with all workers on other shares of the servers. The coordinator has
// it. A state machine without I/O, clock or thread.
//
//   idle ──Propose──► preparing ──every worker answered──► committing
//     ▲                                                        │
//     └───────────────────────Committed────────────────────────┘
//
// From kPrepare to kCommit a worker begins no push-pull; those that it has
// begun go on. So when all have answered with their next rounds, no round of a
// tensor from the largest of these on has begun anywhere, and all before it
// have begun, or will, with the shares that hold.
//
// The answers come from the workers' transports, not from their programs: a
// worker that waits, or has joined, answers all the same, and one that is lost
// ends everything. So a worker never waits for long.
#ifndef BYTEPS_CONTROL_REBALANCE_H_
#define BYTEPS_CONTROL_REBALANCE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "csrc/base/config.h"
#include "csrc/wire/messages.h"

namespace byteps {

class Rebalance {
 public:
  explicit Rebalance(const Config& config);

  // The kPrepare for all workers. None while another rebalance is under way, or
  // when a worker has left.
  std::optional<RebalanceBody> Propose(std::vector<uint64_t> shares);
  // The kCommit for all workers, with the last answer that it needs.
  std::optional<RebalanceBody> Answered(uint32_t rank,
                                        const RebalanceBody& answer);
  // A worker that has left makes no rounds, and answers no more.
  std::optional<RebalanceBody> Left(uint32_t rank);
  // The commit is on its way to everybody, so what comes next is behind it.
  void Committed();

 private:
  enum class State { kIdle, kPreparing, kCommitting };
  std::optional<RebalanceBody> CommitIfAgreed();

  State state_ = State::kIdle;
  uint64_t version_ = 0;
  std::vector<uint64_t> shares_;
  std::vector<bool> left_;               // by rank
  std::vector<bool> answered_;           // by rank
  std::map<uint64_t, uint64_t> rounds_;  // the largest, by tensor
};

}  // namespace byteps

#endif  // BYTEPS_CONTROL_REBALANCE_H_

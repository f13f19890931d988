// Where partitions go that their planned servers have lost to others. Pure;
// integers, so that every process has the same answer to the last bit.
//
// Moves are from the plan: those of a later rebalance do not build on those of
// an earlier one.
#ifndef BYTEPS_WORKER_MOVES_H_
#define BYTEPS_WORKER_MOVES_H_

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "csrc/wire/header.h"
#include "csrc/wire/messages.h"

namespace byteps {

class Moves {
 public:
  Moves() = default;  // nothing moves
  // From the planned shares to others, both by server and with one sum. Of the
  // partitions of a server that loses, as many stay as its new share is of its
  // old one; the rest goes to the servers that gain, in proportion to that.
  Moves(const std::vector<uint64_t>& planned,
        const std::vector<uint64_t>& shares);

  // A tensor's first partition never moves: workers that disagree on the
  // tensor meet there (see worker/placement.h).
  uint32_t ServerOf(const Key& key, uint32_t planned) const;

 private:
  // The part that stays, of 2^32, by planned server; empty: nothing moves.
  std::vector<uint64_t> stays_;
  std::vector<uint64_t> gained_;  // by this server and those before it
};

// Which moves hold for a round of a tensor. The same on all workers, since it
// is made from commits only.
class MovesByRound {
 public:
  // From the rounds given on, and in tensors without one from the first on.
  void Commit(Moves moves, const std::vector<TensorRound>& first_rounds);
  const Moves& For(uint64_t tensor, uint64_t round) const;

 private:
  using MovesPtr = std::shared_ptr<const Moves>;
  // More are never in use: when a worker begins a round, all others have begun
  // the one before it.
  struct OfTensor {
    MovesPtr before;
    uint64_t first_round = 0;  // of `since`
    MovesPtr since;
  };
  MovesPtr last_ = std::make_shared<const Moves>();
  std::unordered_map<uint64_t, OfTensor> tensors_;
};

}  // namespace byteps

#endif  // BYTEPS_WORKER_MOVES_H_

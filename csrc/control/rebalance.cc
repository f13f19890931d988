#include "csrc/control/rebalance.h"

#include <algorithm>
#include <utility>

namespace byteps {

Rebalance::Rebalance(const Config& config) : left_(config.num_workers()) {}

std::optional<RebalanceBody> Rebalance::Propose(std::vector<uint64_t> shares) {
  if (state_ != State::kIdle ||
      std::find(left_.begin(), left_.end(), true) != left_.end()) {
    return std::nullopt;
  }
  state_ = State::kPreparing;
  shares_ = std::move(shares);
  answered_.assign(left_.size(), false);
  rounds_.clear();
  return RebalanceBody{++version_, shares_, {}};
}

std::optional<RebalanceBody> Rebalance::Answered(uint32_t rank,
                                                 const RebalanceBody& answer) {
  if (state_ != State::kPreparing || answer.version != version_ ||
      rank >= answered_.size()) {
    return std::nullopt;
  }
  answered_[rank] = true;
  for (const TensorRound& next : answer.rounds) {
    uint64_t& round = rounds_[next.tensor];
    round = std::max(round, next.round);
  }
  return CommitIfAgreed();
}

std::optional<RebalanceBody> Rebalance::Left(uint32_t rank) {
  if (rank < left_.size()) left_[rank] = true;
  if (state_ != State::kPreparing) return std::nullopt;
  return CommitIfAgreed();
}

std::optional<RebalanceBody> Rebalance::CommitIfAgreed() {
  for (size_t rank = 0; rank < left_.size(); ++rank) {
    if (!answered_[rank] && !left_[rank]) return std::nullopt;
  }
  state_ = State::kCommitting;
  RebalanceBody commit{version_, shares_, {}};
  for (const auto& [tensor, round] : rounds_) {
    commit.rounds.push_back({tensor, round});
  }
  return commit;
}

void Rebalance::Committed() {
  if (state_ == State::kCommitting) state_ = State::kIdle;
}

}  // namespace byteps

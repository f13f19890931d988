#include "csrc/worker/moves.h"

#include <algorithm>
#include <utility>

namespace byteps {
namespace {

constexpr uint64_t kAll = uint64_t{1} << 32;

// An even sequence over the partitions of a tensor, in [0, kAll): multiples of
// the golden ratio leave no gap and no heap, whichever part of them is taken.
uint64_t PositionOf(const Key& key) {
  constexpr uint32_t kGoldenRatio = 0x9E3779B9u;
  const auto start = static_cast<uint32_t>(key.tensor ^ key.tensor >> 32);
  return static_cast<uint32_t>(start + key.partition * kGoldenRatio);
}

}  // namespace

Moves::Moves(const std::vector<uint64_t>& planned,
             const std::vector<uint64_t>& shares) {
  if (planned == shares) return;
  uint64_t gained = 0;
  for (size_t i = 0; i < planned.size(); ++i) {
    const bool loses = shares[i] < planned[i];
    // A share is at most 2^24.
    stays_.push_back(loses ? kAll * shares[i] / planned[i] : kAll);
    if (!loses) gained += shares[i] - planned[i];
    gained_.push_back(gained);
  }
}

uint32_t Moves::ServerOf(const Key& key, uint32_t planned) const {
  if (key.partition == 0 || planned >= stays_.size()) return planned;
  const uint64_t stays = stays_[planned];
  const uint64_t position = PositionOf(key);
  if (position < stays) return planned;
  const uint64_t gain = (position - stays) * gained_.back() / (kAll - stays);
  const auto receiver = std::upper_bound(gained_.begin(), gained_.end(), gain);
  return static_cast<uint32_t>(receiver - gained_.begin());
}

void MovesByRound::Commit(Moves moves,
                          const std::vector<TensorRound>& first_rounds) {
  const MovesPtr before =
      std::exchange(last_, std::make_shared<const Moves>(std::move(moves)));
  for (const TensorRound& first : first_rounds) {
    auto known = tensors_.find(first.tensor);
    if (known == tensors_.end()) {
      tensors_[first.tensor] = {before, first.round, last_};
      continue;
    }
    OfTensor& tensor = known->second;
    // Else no round was made with those.
    if (first.round > tensor.first_round) tensor.before = tensor.since;
    tensor.first_round = first.round;
    tensor.since = last_;
  }
}

const Moves& MovesByRound::For(uint64_t tensor, uint64_t round) const {
  auto known = tensors_.find(tensor);
  if (known == tensors_.end()) return *last_;
  const OfTensor& of = known->second;
  return round < of.first_round ? *of.before : *of.since;
}

}  // namespace byteps

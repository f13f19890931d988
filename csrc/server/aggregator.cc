#include "csrc/server/aggregator.h"

#include <utility>

namespace byteps {

Aggregator::Aggregator(const Config& config, BufferPool* pool)
    : num_workers_(config.num_workers()),
      stall_warning_ms_(config.stall_warning_ms),
      stall_limit_ms_(config.stall_limit_ms),
      pool_(pool),
      gone_(config.num_workers()) {}

KeySlot* Aggregator::Slot(const Key& key) {
  auto it = slots_.find(key);
  if (it == slots_.end()) {
    it = slots_.emplace(key, KeySlot(key, num_workers_, pool_)).first;
  }
  return &it->second;
}

void Aggregator::Note(const Key& key, KeySlot* slot) {
  if (slot->has_open_round()) {
    open_.emplace(key, slot);
  } else {
    open_.erase(key);
  }
}

void Aggregator::Push(const Key& key, Contribution contribution, int64_t now_ms,
                      Outbox* out) {
  KeySlot* slot = Slot(key);
  slot->Push(std::move(contribution), gone_, now_ms, out);
  Note(key, slot);
}

void Aggregator::Cancel(const Key& key, uint64_t round, const Status& why,
                        Outbox* out) {
  auto it = slots_.find(key);
  if (it == slots_.end()) return;
  it->second.Cancel(round, why, out);
  Note(key, &it->second);
}

void Aggregator::WorkerLeft(uint32_t rank, const Status& why, Outbox* out) {
  if (gone_[rank].ok()) gone_[rank] = why;
  for (auto it = open_.begin(); it != open_.end();) {
    it->second->WorkerLeft(rank, why, out);
    it = it->second->has_open_round() ? std::next(it) : open_.erase(it);
  }
}

void Aggregator::Fail(const Status& why, Outbox* out) {
  for (Status& absence : gone_) {
    if (absence.ok()) absence = why;
  }
  for (auto& entry : open_) entry.second->Fail(why, out);
  open_.clear();
}

std::vector<std::string> Aggregator::CheckStalls(int64_t now_ms, Outbox* out) {
  std::vector<std::string> log;
  for (auto it = open_.begin(); it != open_.end();) {
    it->second->CheckStall(now_ms, stall_warning_ms_, stall_limit_ms_, out,
                           &log);
    it = it->second->has_open_round() ? std::next(it) : open_.erase(it);
  }
  return log;
}

}  // namespace byteps

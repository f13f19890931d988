#include "csrc/server/aggregator.h"

#include <algorithm>
#include <utility>

namespace byteps {

Aggregator::Aggregator(const Config& config, BufferPool* pool,
                       bool answers_joins)
    : num_workers_(config.num_workers()),
      stall_warning_ms_(config.stall_warning_ms),
      stall_limit_ms_(config.stall_limit_ms),
      pool_(pool),
      answers_joins_(answers_joins),
      absences_(config.num_workers()) {}

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
  slot->Push(std::move(contribution), absences_, now_ms, out);
  Note(key, slot);
}

void Aggregator::Cancel(const Key& key, uint64_t round, const Status& why,
                        Outbox* out) {
  auto it = slots_.find(key);
  if (it == slots_.end()) return;
  it->second.Cancel(round, why, out);
  Note(key, &it->second);
}

void Aggregator::WorkerJoined(uint32_t rank, uint64_t push_pulls, Outbox* out) {
  std::vector<bool>& joined = absences_.joined;
  if (joined[rank]) return;
  joined[rank] = true;
  if (push_pulls >= its_push_pulls_) {
    last_to_join_ = rank;
    its_push_pulls_ = push_pulls;
  }
  for (auto it = open_.begin(); it != open_.end();) {
    it->second->WorkerJoined(absences_, out);
    it = it->second->has_open_round() ? std::next(it) : open_.erase(it);
  }
  const Status gone = absences_.WhoIsGone();
  if (!gone.ok()) {
    SendJoinError(rank, gone, out);
    return;
  }
  if (std::find(joined.begin(), joined.end(), false) != joined.end()) return;
  joined.assign(num_workers_, false);
  its_push_pulls_ = 0;
  if (!answers_joins_) return;
  for (uint32_t to = 0; to < num_workers_; ++to) {
    out->push_back({to, Kind::kJoined, Key(), last_to_join_, nullptr});
  }
}

void Aggregator::SendJoinError(uint32_t rank, const Status& why,
                               Outbox* out) const {
  if (!answers_joins_) return;
  auto payload = std::make_shared<Payload>();
  payload->body = EncodeError(why);
  out->push_back({rank, Kind::kJoinError, Key(), 0, std::move(payload)});
}

void Aggregator::WorkerLeft(uint32_t rank, const Status& why, Outbox* out) {
  if (absences_.gone[rank].ok()) absences_.gone[rank] = why;
  for (auto it = open_.begin(); it != open_.end();) {
    it->second->WorkerLeft(rank, why, out);
    it = it->second->has_open_round() ? std::next(it) : open_.erase(it);
  }
  for (uint32_t to = 0; to < num_workers_; ++to) {
    if (absences_.joined[to]) SendJoinError(to, why, out);
  }
}

void Aggregator::Fail(const Status& why, Outbox* out) {
  for (uint32_t rank = 0; rank < num_workers_; ++rank) {
    if (absences_.gone[rank].ok()) absences_.gone[rank] = why;
    if (absences_.joined[rank]) SendJoinError(rank, why, out);
  }
  for (auto& entry : open_) entry.second->Fail(why, out);
  open_.clear();
}

std::vector<std::string> Aggregator::CheckStalls(int64_t now_ms, Outbox* out) {
  std::vector<std::string> log;
  for (auto it = open_.begin(); it != open_.end();) {
    it->second->CheckStall(absences_, now_ms, stall_warning_ms_,
                           stall_limit_ms_, out, &log);
    it = it->second->has_open_round() ? std::next(it) : open_.erase(it);
  }
  return log;
}

}  // namespace byteps

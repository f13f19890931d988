#include "csrc/server/key_slot.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "csrc/reduce/reduce.h"

namespace byteps {
namespace {

constexpr size_t kStepBytes = 128 << 10;

std::shared_ptr<const Payload> Message(std::vector<uint8_t> body) {
  auto payload = std::make_shared<Payload>();
  payload->body = std::move(body);
  return payload;
}

std::string Quoted(const Declaration& declaration) {
  return "tensor \"" + declaration.name + "\"";
}

}  // namespace

Status Absences::WhoIsGone() const {
  for (const Status& status : gone) {
    if (!status.ok()) return status;
  }
  return OkStatus();
}

KeySlot::KeySlot(const Key& key, uint32_t num_workers, BufferPool* pool)
    : key_(key), num_workers_(num_workers), pool_(pool) {}

void KeySlot::Push(Contribution contribution, const Absences& absences,
                   int64_t now_ms, Outbox* out) {
  const uint32_t rank = contribution.rank;
  Round& round = At(contribution.round);
  if (round.state == State::kIdle || round.number < contribution.round) {
    Restart(&round, contribution.round, out);
    round.state = State::kOpen;
    round.opened_ms = round.warned_ms = now_ms;
    round.declaration = contribution.declaration;
    round.declared_by = rank;
    const Status gone = absences.WhoIsGone();
    if (!gone.ok()) FailRound(&round, gone, out);
  } else if (round.number > contribution.round) {
    Round old;
    old.number = contribution.round;
    SendError(old, rank,
              Unavailable(Quoted(*contribution.declaration) +
                          ": the other workers gave this round up"),
              out);
    return;
  }
  if (round.state == State::kFailed) {
    SendError(round, rank, round.failure, out);
    return;
  }
  if (round.state == State::kClosed || round.pushed[rank] ||
      absences.joined[rank]) {
    SendError(round, rank,
              Internal(Quoted(*contribution.declaration) + ": worker " +
                       std::to_string(rank) +
                       (absences.joined[rank] ? " pushed after it had joined"
                                              : " pushed one round twice")),
              out);
    return;
  }
  round.pushed[rank] = true;
  if (*contribution.declaration != *round.declaration) {
    FailRound(&round,
              InvalidArgument(
                  Quoted(*round.declaration) + " differs between workers: " +
                  DescribeDifference(*round.declaration, round.declared_by,
                                     *contribution.declaration, rank)),
              out);
    return;
  }
  if (contribution.lost) {
    FailRound(&round,
              ResourceExhausted(Quoted(*round.declaration) +
                                ": the server has no memory for it"),
              out);
    return;
  }
  round.waiting[rank] = std::move(contribution.data);
  Advance(&round, absences, out);
}

void KeySlot::Advance(Round* round, const Absences& absences, Outbox* out) {
  const Declaration& declared = *round->declaration;
  const uint32_t root = declared.root_rank;
  if (declared.operation == Operation::kBroadcast && root < num_workers_ &&
      absences.joined[root] && !round->pushed[root]) {
    FailRound(round,
              InvalidArgument("Broadcast of " + Quoted(declared) +
                              ": its root, worker " + std::to_string(root) +
                              ", has joined and sends nothing"),
              out);
    return;
  }
  for (; round->combined < num_workers_; ++round->combined) {
    const uint32_t rank = round->combined;
    if (!round->pushed[rank]) {
      if (absences.joined[rank]) continue;
      return;
    }
    Status status = Combine(round, rank);
    if (!status.ok()) {
      FailRound(round, status, out);
      return;
    }
  }
  Finish(round, out);
}

void KeySlot::Restart(Round* round, uint64_t number, Outbox* out) {
  if (round->state == State::kOpen) {
    FailRound(round,
              Unavailable(Quoted(*round->declaration) +
                          ": another worker gave this round up"),
              out);
  }
  *round = Round();
  round->number = number;
  round->pushed.resize(num_workers_);
  round->waiting.resize(num_workers_);
}

Status KeySlot::Combine(Round* round, uint32_t rank) {
  const Declaration& declared = *round->declaration;
  Buffer input = std::move(round->waiting[rank]);
  if (declared.operation == Operation::kBroadcast) {
    if (rank == declared.root_rank) round->accumulator = std::move(input);
    return OkStatus();
  }
  const DType dtype = declared.operation == Operation::kAllgather
                          ? DType::kInt64
                          : declared.dtype;
  if (!round->begun) {
    round->begun = true;
    round->count = input.size() / ElementBytes(dtype);
    if (!IsHalf(dtype)) {
      round->accumulator = std::move(input);
      return OkStatus();
    }
    if (!pool_->Take(round->count * sizeof(float), &round->accumulator)) {
      return ResourceExhausted(Quoted(declared) +
                               ": the server has no memory for its sum");
    }
    Widen(dtype, reinterpret_cast<float*>(round->accumulator.data()),
          input.data(), round->count);
    return OkStatus();
  }
  if (round->accumulator.read_only()) return Own(round, dtype, &input);
  Accumulate(declared.operation, dtype, round->accumulator.data(), input.data(),
             round->count);
  return OkStatus();
}

Status KeySlot::Own(Round* round, DType dtype, const Buffer* input) {
  Buffer theirs = std::move(round->accumulator);
  Buffer& ours = round->accumulator;
  if (!pool_->Take(theirs.size(), &ours)) {
    return ResourceExhausted(Quoted(*round->declaration) +
                             ": the server has no memory for its sum");
  }
  // In steps that stay in the cache between the two passes.
  for (size_t at = 0; at < theirs.size(); at += kStepBytes) {
    const size_t bytes = std::min(kStepBytes, theirs.size() - at);
    std::memcpy(ours.data() + at, theirs.data() + at, bytes);
    if (input == nullptr) continue;
    Accumulate(round->declaration->operation, dtype, ours.data() + at,
               input->data() + at, bytes / ElementBytes(dtype));
  }
  return OkStatus();
}

void KeySlot::Finish(Round* round, Outbox* out) {
  const Declaration& declared = *round->declaration;
  const bool broadcast = declared.operation == Operation::kBroadcast;
  if (round->accumulator.read_only()) {
    const Status status = Own(round, declared.dtype, nullptr);
    if (!status.ok()) return FailRound(round, status, out);
  }
  if (declared.operation == Operation::kAverage) {
    Divide(AccumulatorType(declared.dtype), round->accumulator.data(),
           num_workers_, round->count);
  }
  auto payload = std::make_shared<Payload>();
  if (!broadcast && IsHalf(declared.dtype) &&
      declared.operation != Operation::kAllgather) {
    if (!pool_->Take(round->count * ElementBytes(declared.dtype),
                     &payload->buffer)) {
      FailRound(round,
                ResourceExhausted(Quoted(declared) +
                                  ": the server has no memory for its sum"),
                out);
      return;
    }
    Narrow(declared.dtype, payload->buffer.data(),
           reinterpret_cast<const float*>(round->accumulator.data()),
           round->count);
    round->accumulator = Buffer();
  } else {
    payload->buffer = std::move(round->accumulator);
  }
  for (uint32_t rank = 0; rank < num_workers_; ++rank) {
    if (!round->pushed[rank]) continue;
    const bool has_it = broadcast && rank == declared.root_rank;
    out->push_back(
        {rank, Kind::kResult, key_, round->number, has_it ? nullptr : payload});
  }
  round->state = State::kClosed;
}

void KeySlot::FailRound(Round* round, const Status& why, Outbox* out) {
  round->failure = why;
  round->state = State::kFailed;
  round->accumulator = Buffer();
  for (uint32_t rank = 0; rank < num_workers_; ++rank) {
    round->waiting[rank] = Buffer();
    if (round->pushed[rank]) SendError(*round, rank, why, out);
  }
}

void KeySlot::SendError(const Round& round, uint32_t rank, const Status& why,
                        Outbox* out) const {
  out->push_back(
      {rank, Kind::kRoundError, key_, round.number, Message(EncodeError(why))});
}

void KeySlot::Cancel(uint64_t number, const Status& why, Outbox* out) {
  Round& round = At(number);
  if (round.state == State::kOpen && round.number == number) {
    FailRound(&round, why, out);
  }
}

void KeySlot::WorkerJoined(const Absences& absences, Outbox* out) {
  for (Round& round : rounds_) {
    if (round.state == State::kOpen) Advance(&round, absences, out);
  }
}

void KeySlot::WorkerLeft(uint32_t rank, const Status& why, Outbox* out) {
  for (Round& round : rounds_) {
    if (round.state == State::kOpen && !round.pushed[rank]) {
      FailRound(&round, why, out);
    }
  }
}

void KeySlot::Fail(const Status& why, Outbox* out) {
  for (Round& round : rounds_) {
    if (round.state == State::kOpen) FailRound(&round, why, out);
  }
}

std::string KeySlot::Missing(const Round& round,
                             const Absences& absences) const {
  std::string text;
  for (uint32_t rank = 0; rank < num_workers_; ++rank) {
    if (round.pushed[rank] || absences.joined[rank]) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(rank);
  }
  return text;
}

void KeySlot::CheckStall(const Absences& absences, int64_t now_ms,
                         int64_t warning_ms, int64_t limit_ms, Outbox* out,
                         std::vector<std::string>* log) {
  for (Round& round : rounds_) {
    if (round.state != State::kOpen) continue;
    const int64_t waited_ms = now_ms - round.opened_ms;
    const std::string text = Quoted(*round.declaration) + " has waited " +
                             std::to_string(waited_ms / 1000) +
                             " s for the workers of rank " +
                             Missing(round, absences);
    if (waited_ms >= limit_ms) {
      FailRound(&round, DeadlineExceeded(text + " (stall_limit)"), out);
    } else if (now_ms - round.warned_ms >= warning_ms) {
      round.warned_ms = now_ms;
      log->push_back(text);
      auto message = Message(std::vector<uint8_t>(text.begin(), text.end()));
      for (uint32_t rank = 0; rank < num_workers_; ++rank) {
        if (round.pushed[rank]) {
          out->push_back({rank, Kind::kStall, key_, round.number, message});
        }
      }
    }
  }
}

bool KeySlot::has_open_round() const {
  return rounds_[0].state == State::kOpen || rounds_[1].state == State::kOpen;
}

}  // namespace byteps

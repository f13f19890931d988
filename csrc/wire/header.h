// The fixed header in front of every message between two processes of a job.
//
// 48 bytes, little endian, in the order of the fields below. Job identity is
// not in it: it is proved once per connection (see wire/handshake.h).
#ifndef BYTEPS_WIRE_HEADER_H_
#define BYTEPS_WIRE_HEADER_H_

#include <cstdint>

#include "csrc/base/status.h"

namespace byteps {

enum class Kind : uint16_t {
  // Data, worker to server.
  kDeclare = 1,  // payload: Declaration; holds for the pushes that follow
  kPush = 2,     // payload: this worker's partition
  kCancel = 3,   // the worker gave the round up; no payload
  kJoin = 7,     // no more pushes until everybody has joined; round: how many
                 // push-pulls the worker made since that last was so
  // Data, server to worker.
  kResult = 4,      // payload: the partition's result
  kRoundError = 5,  // payload: ErrorBody; the round failed on all workers
  kStall = 6,       // payload: text, a warning to log
  kJoined = 8,      // everybody has joined; round: the rank that was last
  kJoinError = 9,   // payload: ErrorBody; that will not come to pass
  // Control.
  kReady = 16,  // to the coordinator: all my connections stand
  kStart = 17,  // from the coordinator: everybody is ready; payload: StartBody
  kGoodbye = 18,  // the sender leaves in order; its end is no loss
  kLost = 19,     // payload: LossBody; somebody is gone
  kAskTime = 20,  // to the coordinator; payload: TimeBody without an answer
  kTime = 21,     // its answer; payload: TimeBody
  // Payload: RebalanceBody. See control/rebalance.h.
  kPropose = 22,   // to the coordinator: other shares would be better
  kPrepare = 23,   // from the coordinator: begin nothing new
  kPrepared = 24,  // its answer: this worker's next rounds
  kCommit = 25,    // from the coordinator: go on with other shares
  // Inside the transport only.
  kPing = 32,      // liveness
  kShare = 33,     // payload: where to show the sender a region
  kShared = 34,    // the region is mapped: payloads may stay in it
  kReturned = 35,  // the payload at `place` is read
};

struct Key {
  uint64_t tensor = 0;     // TensorId(name)
  uint32_t partition = 0;  // position in the tensor

  bool operator==(const Key& o) const {
    return tensor == o.tensor && partition == o.partition;
  }
};

struct KeyHash {
  size_t operator()(const Key& k) const {
    return static_cast<size_t>(k.tensor ^
                               (k.partition * 0x9E3779B97F4A7C15ull));
  }
};

struct Header {
  static constexpr size_t kBytes = 48;

  Kind kind = Kind::kPing;
  uint16_t flags = 0;
  uint32_t membership_epoch = 0;
  Key key;  // tensor, then round stands between tensor and partition
  uint64_t round = 0;
  uint64_t payload_bytes = 0;
  // The payload does not follow, it stays at offset `place` of the memory that
  // the sender shares with this peer. Transports set both.
  bool in_place = false;
  uint64_t place = 0;
};

// Writes Header::kBytes bytes.
void Encode(const Header& header, uint8_t* out);
// Reads Header::kBytes bytes. InvalidArgument for a kind that does not exist.
Result<Header> DecodeHeader(const uint8_t* in);

}  // namespace byteps

#endif  // BYTEPS_WIRE_HEADER_H_

// Bodies of the messages that are not raw tensor data.
#ifndef BYTEPS_WIRE_MESSAGES_H_
#define BYTEPS_WIRE_MESSAGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/base/config.h"
#include "csrc/base/status.h"
#include "csrc/wire/dtype.h"

namespace byteps {

// The first eight bytes of SHA-256(name), little endian: the same on every
// worker, whatever the order of first use.
uint64_t TensorId(const std::string& name);

// With which tensors a tensor was planned, and to what end (see
// worker/placement.h). All 0: with none.
struct PlanSummary {
  uint64_t digest = 0;  // of the servers of its partitions
  uint64_t tensors = 0;
  uint64_t bytes = 0;

  bool operator==(const PlanSummary& o) const {
    return digest == o.digest && tensors == o.tensors && bytes == o.bytes;
  }
};

// What a worker says of a tensor before it pushes it. Workers must agree on all
// of it; the server compares.
struct Declaration {
  std::string name;
  DType dtype = DType::kFloat32;
  Operation operation = Operation::kSum;
  uint32_t root_rank = 0;  // broadcast only
  std::vector<int64_t> shape;
  uint64_t partition_bytes = 0;
  PlanSummary plan;
  std::string compression;

  bool operator==(const Declaration& o) const {
    return name == o.name && dtype == o.dtype && operation == o.operation &&
           root_rank == o.root_rank && shape == o.shape &&
           partition_bytes == o.partition_bytes && plan == o.plan &&
           compression == o.compression;
  }
  bool operator!=(const Declaration& o) const { return !(*this == o); }

  // Of the payloads that this declaration announces, over all partitions. For
  // kAllgather these are int64[num_workers], whatever the dtype.
  size_t element_bytes() const;
  uint64_t total_bytes(uint32_t num_workers) const;
};

std::vector<uint8_t> Encode(const Declaration& declaration);
// InvalidArgument if the bytes are no declaration: bad lengths, unknown type or
// operation, an operation the type does not support, a negative dimension, more
// than 255 dimensions, an overflowing size.
Result<Declaration> DecodeDeclaration(const uint8_t* data, size_t bytes);

// Empty if equal, else what differs, in words for the user:
// "shape [4] on worker 0 and [5] on worker 1".
std::string DescribeDifference(const Declaration& a, uint32_t rank_a,
                               const Declaration& b, uint32_t rank_b);

std::vector<uint8_t> EncodeError(const Status& status);
Status DecodeError(const uint8_t* data, size_t bytes);

struct LossBody {
  ProcessName who;
  std::string reason;  // a whole sentence for the user
};
std::vector<uint8_t> Encode(const LossBody& loss);
Result<LossBody> DecodeLoss(const uint8_t* data, size_t bytes);

struct StartBody {
  int64_t wall_ns = 0;  // when the coordinator saw all ready; names the job
};
std::vector<uint8_t> Encode(const StartBody& start);
Result<StartBody> DecodeStart(const uint8_t* data, size_t bytes);

struct TimeBody {
  int64_t asked_ns = 0;     // on the clock of who asked
  int64_t answered_ns = 0;  // on the coordinator's
};
std::vector<uint8_t> Encode(const TimeBody& time);
Result<TimeBody> DecodeTime(const uint8_t* data, size_t bytes);

struct TensorRound {
  uint64_t tensor = 0;  // TensorId(name)
  uint64_t round = 0;

  bool operator==(const TensorRound& o) const {
    return tensor == o.tensor && round == o.round;
  }
};

// What the messages of a rebalance carry. Each leaves empty what it has no use
// for.
struct RebalanceBody {
  uint64_t version = 0;             // of the shares; 0: proposed only
  std::vector<uint64_t> shares;     // by server
  std::vector<TensorRound> rounds;  // of a worker: its next ones; of a commit:
                                    // the first ones with these shares
};
std::vector<uint8_t> Encode(const RebalanceBody& rebalance);
Result<RebalanceBody> DecodeRebalance(const uint8_t* data, size_t bytes);

}  // namespace byteps

#endif  // BYTEPS_WIRE_MESSAGES_H_

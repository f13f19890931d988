#include "csrc/wire/messages.h"

#include <limits>

#include "csrc/wire/bytes.h"
#include "csrc/wire/sha256.h"

namespace byteps {
namespace {

constexpr size_t kMaxDimensions = 255;

std::string ShapeText(const Declaration& d) {
  std::string text = "[";
  for (size_t i = 0; i < d.shape.size(); ++i) {
    if (i > 0) text += ", ";
    // Workers may gather different numbers of rows.
    const bool any = i == 0 && d.operation == Operation::kAllgather;
    text += any ? "any" : std::to_string(d.shape[i]);
  }
  return text + "]";
}

std::string OperationText(const Declaration& d) {
  std::string text = Name(d.operation);
  if (d.operation == Operation::kBroadcast) {
    text += " from rank " + std::to_string(d.root_rank);
  }
  return text;
}

std::string PlanText(const Declaration& d) {
  if (d.plan.tensors == 0) return "none";
  return std::to_string(d.plan.tensors) + " of " +
         std::to_string(d.plan.bytes) + " bytes in all";
}

std::string Both(const std::string& what, const std::string& a, uint32_t rank_a,
                 const std::string& b, uint32_t rank_b) {
  return what + " " + a + " on worker " + std::to_string(rank_a) + " and " + b +
         " on worker " + std::to_string(rank_b);
}

}  // namespace

uint64_t TensorId(const std::string& name) {
  const Digest digest = Sha256(name);
  uint64_t id = 0;
  for (int i = 7; i >= 0; --i) id = id << 8 | digest[i];
  return id;
}

size_t Declaration::element_bytes() const {
  return operation == Operation::kAllgather ? sizeof(int64_t)
                                            : ElementBytes(dtype);
}

uint64_t Declaration::total_bytes(uint32_t num_workers) const {
  uint64_t total = element_bytes();
  if (operation == Operation::kAllgather) return total * num_workers;
  for (int64_t dimension : shape) total *= static_cast<uint64_t>(dimension);
  return total;
}

std::vector<uint8_t> Encode(const Declaration& d) {
  ByteWriter writer;
  writer.Text(d.name);
  writer.Number(static_cast<uint8_t>(d.dtype));
  writer.Number(static_cast<uint8_t>(d.operation));
  writer.Number(d.root_rank);
  writer.Number(static_cast<uint8_t>(d.shape.size()));
  for (int64_t dimension : d.shape) writer.Number(dimension);
  writer.Number(d.partition_bytes);
  writer.Number(d.plan.digest);
  writer.Number(d.plan.tensors);
  writer.Number(d.plan.bytes);
  writer.Text(d.compression);
  return writer.Take();
}

Result<Declaration> DecodeDeclaration(const uint8_t* data, size_t bytes) {
  ByteReader reader(data, bytes);
  Declaration d;
  uint8_t dtype = 0, operation = 0, dimensions = 0;
  reader.Text(&d.name);
  reader.Number(&dtype);
  reader.Number(&operation);
  reader.Number(&d.root_rank);
  if (!reader.Number(&dimensions)) {
    return InvalidArgument("a declaration that ends too early");
  }
  static_assert(std::numeric_limits<uint8_t>::max() == kMaxDimensions,
                "the rank travels in one byte");
  d.shape.resize(dimensions);
  for (int64_t& dimension : d.shape) reader.Number(&dimension);
  reader.Number(&d.partition_bytes);
  reader.Number(&d.plan.digest);
  reader.Number(&d.plan.tensors);
  reader.Number(&d.plan.bytes);
  reader.Text(&d.compression);
  if (!reader.finished()) {
    return InvalidArgument("a declaration of the wrong length");
  }
  d.dtype = static_cast<DType>(dtype);
  d.operation = static_cast<Operation>(operation);
  if (!Supports(d.operation, d.dtype)) {
    return InvalidArgument("a declaration of " +
                           std::string(Name(d.operation)) + " over " +
                           Name(d.dtype));
  }
  if (d.partition_bytes == 0) {
    return InvalidArgument("a declaration with empty partitions");
  }
  uint64_t total = ElementBytes(d.dtype);
  bool empty = false;
  for (int64_t dimension : d.shape) {
    if (dimension < 0) {
      return InvalidArgument("a declaration with a negative dimension");
    }
    empty = empty || dimension == 0;
  }
  constexpr uint64_t kLimit = std::numeric_limits<int64_t>::max();
  for (int64_t dimension : d.shape) {
    if (empty) break;
    if (total > kLimit / static_cast<uint64_t>(dimension)) {
      return InvalidArgument("a declaration of more than 2^63 bytes");
    }
    total *= static_cast<uint64_t>(dimension);
  }
  return d;
}

std::string DescribeDifference(const Declaration& a, uint32_t rank_a,
                               const Declaration& b, uint32_t rank_b) {
  if (a.name != b.name) {
    return Both("names with one id:", '"' + a.name + '"', rank_a,
                '"' + b.name + '"', rank_b);
  }
  if (a.dtype != b.dtype) {
    return Both("type", Name(a.dtype), rank_a, Name(b.dtype), rank_b);
  }
  if (a.operation != b.operation || a.root_rank != b.root_rank) {
    return Both("operation", OperationText(a), rank_a, OperationText(b),
                rank_b);
  }
  if (a.shape != b.shape) {
    return Both("shape", ShapeText(a), rank_a, ShapeText(b), rank_b);
  }
  const bool travel_alike =
      a.plan.tensors == b.plan.tensors && a.plan.bytes == b.plan.bytes;
  if (a.partition_bytes != b.partition_bytes && travel_alike) {
    return Both("partition_bytes", std::to_string(a.partition_bytes), rank_a,
                std::to_string(b.partition_bytes), rank_b);
  }
  if (!(a.plan == b.plan)) {
    return Both("sizes of the tensors that it travels with:", PlanText(a),
                rank_a, PlanText(b), rank_b);
  }
  if (a.compression != b.compression) {
    return Both("compression", '"' + a.compression + '"', rank_a,
                '"' + b.compression + '"', rank_b);
  }
  return "";
}

std::vector<uint8_t> EncodeError(const Status& status) {
  ByteWriter writer;
  writer.Number(static_cast<uint8_t>(status.code()));
  writer.Text(status.message());
  return writer.Take();
}

Status DecodeError(const uint8_t* data, size_t bytes) {
  ByteReader reader(data, bytes);
  uint8_t code = 0;
  std::string message;
  reader.Number(&code);
  reader.Text(&message);
  if (!reader.finished() || code == 0) {
    return Internal("an error report that cannot be read");
  }
  return Status(static_cast<Code>(code), message);
}

std::vector<uint8_t> Encode(const LossBody& loss) {
  ByteWriter writer;
  writer.Number(static_cast<uint8_t>(loss.who.role));
  writer.Number(loss.who.index);
  writer.Text(loss.reason);
  return writer.Take();
}

Result<LossBody> DecodeLoss(const uint8_t* data, size_t bytes) {
  ByteReader reader(data, bytes);
  LossBody loss;
  uint8_t role = 0;
  reader.Number(&role);
  reader.Number(&loss.who.index);
  reader.Text(&loss.reason);
  if (!reader.finished() || role > static_cast<uint8_t>(Role::kWorker)) {
    return InvalidArgument("a report of a loss that cannot be read");
  }
  loss.who.role = static_cast<Role>(role);
  return loss;
}

std::vector<uint8_t> Encode(const StartBody& start) {
  ByteWriter writer;
  writer.Number(start.wall_ns);
  return writer.Take();
}

Result<StartBody> DecodeStart(const uint8_t* data, size_t bytes) {
  ByteReader reader(data, bytes);
  StartBody start;
  reader.Number(&start.wall_ns);
  if (!reader.finished() || start.wall_ns <= 0) {
    return InvalidArgument("a start that cannot be read");
  }
  return start;
}

std::vector<uint8_t> Encode(const TimeBody& time) {
  ByteWriter writer;
  writer.Number(time.asked_ns);
  writer.Number(time.answered_ns);
  return writer.Take();
}

Result<TimeBody> DecodeTime(const uint8_t* data, size_t bytes) {
  ByteReader reader(data, bytes);
  TimeBody time;
  reader.Number(&time.asked_ns);
  reader.Number(&time.answered_ns);
  if (!reader.finished()) {
    return InvalidArgument("a time that cannot be read");
  }
  return time;
}

std::vector<uint8_t> Encode(const RebalanceBody& rebalance) {
  ByteWriter writer;
  writer.Number(rebalance.version);
  writer.Number(static_cast<uint32_t>(rebalance.shares.size()));
  for (uint64_t share : rebalance.shares) writer.Number(share);
  for (const TensorRound& of : rebalance.rounds) {
    writer.Number(of.tensor);
    writer.Number(of.round);
  }
  return writer.Take();
}

Result<RebalanceBody> DecodeRebalance(const uint8_t* data, size_t bytes) {
  ByteReader reader(data, bytes);
  RebalanceBody rebalance;
  uint32_t count = 0;
  reader.Number(&rebalance.version);
  // What follows is all that the shares and rounds can be.
  bool good = reader.Number(&count) && count <= bytes / sizeof(uint64_t);
  for (uint32_t i = 0; good && i < count; ++i) {
    good = reader.Number(&rebalance.shares.emplace_back());
  }
  while (good && !reader.finished()) {
    TensorRound& of = rebalance.rounds.emplace_back();
    good = reader.Number(&of.tensor) && reader.Number(&of.round);
  }
  if (!good) return InvalidArgument("a rebalance that cannot be read");
  return rebalance;
}

}  // namespace byteps

#include "csrc/worker/placement.h"

#include <algorithm>

#include "csrc/wire/bytes.h"
#include "csrc/wire/partition.h"
#include "csrc/worker/partitioner.h"
#include "csrc/worker/shares.h"

namespace byteps {
namespace {

// How often a server with an average share comes in a round.
constexpr size_t kTurns = 64;
// A server with a smaller part of the largest share than one in this many has
// no first partitions: they alone could be more than it should sum.
constexpr uint64_t kHomeRatio = 4;

// Servers in turn, each as often and as evenly as its share asks for.
std::vector<uint32_t> Round(const std::vector<uint64_t>& shares) {
  uint64_t sum = 0;
  for (uint64_t share : shares) sum += share;
  std::vector<uint32_t> round(kTurns * shares.size());
  std::vector<int64_t> due(shares.size());
  for (uint32_t& server : round) {
    for (size_t i = 0; i < due.size(); ++i) {
      due[i] += static_cast<int64_t>(shares[i]);
    }
    const auto next = std::max_element(due.begin(), due.end());
    *next -= static_cast<int64_t>(sum);
    server = static_cast<uint32_t>(next - due.begin());
  }
  return round;
}

struct Piece {
  size_t tensor = 0;
  uint32_t partition = 0;
  uint64_t bytes = 0;
};

}  // namespace

std::string Encode(const TensorPlan& plan) {
  if (plan.servers.empty()) return std::string();
  ByteWriter writer;
  writer.Number(plan.summary.tensors);
  writer.Number(plan.summary.bytes);
  for (uint32_t server : plan.servers) writer.Number(server);
  const std::vector<uint8_t> bytes = writer.Take();
  return std::string(bytes.begin(), bytes.end());
}

Result<TensorPlan> DecodeTensorPlan(const std::string& bytes) {
  TensorPlan plan;
  if (bytes.empty()) return plan;
  ByteReader reader(reinterpret_cast<const uint8_t*>(bytes.data()),
                    bytes.size());
  reader.Number(&plan.summary.tensors);
  bool good = reader.Number(&plan.summary.bytes);
  while (good && !reader.finished()) {
    good = reader.Number(&plan.servers.emplace_back());
  }
  if (!good) return InvalidArgument("a plan that cannot be read");
  plan.summary.digest = TensorId(bytes);
  return plan;
}

Placement::Placement(const std::vector<uint64_t>& shares,
                     uint64_t partition_bytes, bool one_host)
    : shares_(shares),
      partition_bytes_(partition_bytes),
      one_host_(one_host),
      round_(Round(shares)) {
  const uint64_t most = *std::max_element(shares.begin(), shares.end());
  std::vector<uint64_t> home_shares = shares;
  for (uint64_t& share : home_shares) {
    if (share > 0) ++num_used_;
    if (share < most / kHomeRatio) share = 0;
  }
  homes_ = Round(home_shares);
}

uint32_t Placement::ServerOf(const Key& key, const TensorPlan* plan) const {
  if (key.partition == 0) return homes_[key.tensor % homes_.size()];
  // A plan may be of another job, with more servers.
  if (plan != nullptr && key.partition < plan->servers.size() &&
      plan->servers[key.partition] < shares_.size()) {
    return plan->servers[key.partition];
  }
  return round_[(key.tensor + key.partition) % round_.size()];
}

uint64_t Placement::PartitionBytes(uint64_t total_bytes,
                                   const TensorPlan* plan) const {
  if (partition_bytes_ > 0) return partition_bytes_;
  const uint64_t together_bytes = plan == nullptr ? 0 : plan->summary.bytes;
  return FittingPartitionBytes(total_bytes, together_bytes, num_used_,
                               one_host_);
}

Plan Placement::PlanTogether(const std::vector<PlannedTensor>& tensors) const {
  Plan plan;
  plan.tensors.resize(tensors.size());
  plan.bytes.resize(shares_.size());
  std::vector<Piece> pieces;
  TensorPlan planned;
  planned.summary.tensors = tensors.size();
  for (const PlannedTensor& tensor : tensors) {
    planned.summary.bytes += tensor.bytes;
  }
  const uint64_t total = planned.summary.bytes;
  for (size_t t = 0; t < tensors.size(); ++t) {
    const PlannedTensor& tensor = tensors[t];
    plan.tensors[t] = planned;
    const uint64_t step = PartitionBytes(tensor.bytes, &planned);
    const uint64_t count =
        PartitionCount(tensor.bytes, step, tensor.element_bytes);
    // The partitioner refuses it.
    if (count > kMaxPartitions) continue;
    const uint32_t home = ServerOf({TensorId(tensor.name), 0}, nullptr);
    std::vector<uint32_t>& servers = plan.tensors[t].servers;
    if (tensor.bytes > PartitionBytes(0, nullptr)) servers.assign(count, home);
    for (uint32_t p = 0; p < count; ++p) {
      const uint64_t bytes =
          PartitionAt(p, tensor.bytes, step, tensor.element_bytes).bytes;
      if (p == 0) {
        plan.bytes[home] += bytes;
      } else {
        pieces.push_back({t, p, bytes});
      }
    }
  }
  std::vector<int64_t> due(shares_.size());
  for (size_t i = 0; i < due.size(); ++i) {
    const uint64_t target = total / kWholeModel * shares_[i] +
                            total % kWholeModel * shares_[i] / kWholeModel;
    due[i] = static_cast<int64_t>(target) - static_cast<int64_t>(plan.bytes[i]);
  }
  std::stable_sort(
      pieces.begin(), pieces.end(),
      [](const Piece& a, const Piece& b) { return a.bytes > b.bytes; });
  for (const Piece& piece : pieces) {
    const auto next = std::max_element(due.begin(), due.end());
    const size_t server = static_cast<size_t>(next - due.begin());
    *next -= static_cast<int64_t>(piece.bytes);
    plan.bytes[server] += piece.bytes;
    plan.tensors[piece.tensor].servers[piece.partition] =
        static_cast<uint32_t>(server);
  }
  return plan;
}

}  // namespace byteps

#include "csrc/worker/worker_client.h"

#include <unistd.h>

#include <algorithm>
#include <limits>

#include "csrc/base/log.h"
#include "csrc/worker/partitioner.h"
#include "csrc/worker/push_pull_operation.h"
#include "csrc/worker/shares.h"

namespace byteps {
namespace {

// A round's number is that of its generation, and in these bits that of the
// tensor's push-pull in it.
constexpr int kRoundBits = 40;
// Errors and warnings of a server are sentences.
constexpr uint64_t kMaxBodyBytes = 1 << 16;

std::string Quoted(const PushPullRequest& request) {
  return "tensor \"" + request.name + "\"";
}

// "12.5 %".
std::string Percent(uint64_t share) {
  const uint64_t tenths = (share * 1000 + kWholeModel / 2) / kWholeModel;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " %";
}

Landing Refuse() {
  Landing landing;
  landing.accept = false;
  return landing;
}

}  // namespace

WorkerClient::WorkerClient(const Config& config, Timeline* timeline,
                           Propose propose)
    : config_(config),
      placement_(SharesOf(config), config.partition_bytes, config.one_host),
      pid_(getpid()),
      timeline_(timeline),
      table_(config.num_servers()),
      left_(config.num_servers()),
      shares_(SharesOf(config)),
      propose_(std::move(propose)),
      dispatcher_(shares_, config.credit_bytes,
                  [this](uint32_t server, const Queued& item) {
                    StartPartition(server, item);
                  }) {
  // Two that measure would undo each other's changes.
  if (!config.rebalance || propose_ == nullptr || config.self.index != 0 ||
      config.num_servers() < 2) {
    return;
  }
  meter_.emplace(shares_, config.serves(config.self)
                              ? config.server_index(config.self)
                              : config.num_servers());
}

WorkerClient::~WorkerClient() = default;

void WorkerClient::Start(std::vector<Peer*> servers,
                         uint32_t membership_epoch) {
  std::lock_guard<std::mutex> lock(mutex_);
  servers_ = std::move(servers);
  membership_epoch_ = membership_epoch;
}

Status WorkerClient::Validate(const PushPullRequest& request) const {
  if (request.name.empty()) {
    return InvalidArgument("a tensor needs a name. Received: \"\"");
  }
  if (!Supports(request.operation, request.dtype)) {
    std::string text = std::string(Name(request.operation)) + " of " +
                       Quoted(request) + ": not defined for " +
                       Name(request.dtype);
    if (request.operation == Operation::kAverage &&
        Supports(Operation::kSum, request.dtype)) {
      text += "; use Sum, or cast to a floating type";
    }
    return InvalidArgument(text);
  }
  if (request.operation == Operation::kBroadcast &&
      request.root_rank >= config_.num_workers()) {
    return InvalidArgument("Broadcast of " + Quoted(request) +
                           ": root_rank must be in [0, " +
                           std::to_string(config_.num_workers()) +
                           "). Received: " + std::to_string(request.root_rank));
  }
  uint64_t bytes = ElementBytes(request.dtype);
  for (int64_t dimension : request.shape) {
    if (dimension < 0) {
      return InvalidArgument(Quoted(request) +
                             ": dimensions must not be negative. Received: " +
                             std::to_string(dimension));
    }
    if (dimension != 0 &&
        bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) /
                    static_cast<uint64_t>(dimension)) {
      return InvalidArgument(Quoted(request) + " has 2^63 bytes or more");
    }
    bytes *= static_cast<uint64_t>(dimension);
  }
  return OkStatus();
}

Status WorkerClient::CheckProcess() const {
  if (getpid() == pid_) return OkStatus();
  return FailedPrecondition("tf_byteps was initialised in process " +
                            std::to_string(pid_) +
                            " and cannot be used in its forked child");
}

Status WorkerClient::MayBeginLocked() const {
  if (!failure_.ok()) return failure_;
  if (servers_.empty()) {
    return FailedPrecondition("the job has not started yet");
  }
  if (joining_.has_value()) {
    return FailedPrecondition(
        "this worker has joined, and can do nothing more until all others "
        "have");
  }
  return OkStatus();
}

void WorkerClient::PushPull(PushPullRequest request, StatusCallback done) {
  PushPull(std::move(request), 0, std::move(done));
}

void WorkerClient::PushPull(PushPullRequest request, uint64_t allgather_turn,
                            StatusCallback done) {
  Status status = CheckProcess();
  if (status.ok()) status = Validate(request);
  if (!status.ok()) {
    done(status);
    return;
  }
  auto operation = std::make_shared<PushPullOperation>();
  operation->request = std::move(request);
  operation->done = std::move(done);
  operation->turn = allgather_turn;
  operation->called_ns = NowOn(timeline_);
  Afterwards after;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    // An allgather that began before a join still has its rows to send.
    status = allgather_turn > 0 ? failure_ : MayBeginLocked();
    if (status.ok()) {
      BeginLocked(std::move(operation), &after);
    } else {
      after.completed.emplace_back(std::move(operation->done), status);
    }
  }
  Finish(std::move(after));
}

void WorkerClient::BeginLocked(OperationPtr operation, Afterwards* after) {
  const PushPullRequest& request = operation->request;
  Result<TensorEntry*> entry = table_.Get(request.name);
  if (!entry.ok()) {
    after->completed.emplace_back(std::move(operation->done), entry.status());
    return;
  }
  operation->entry = entry.value();
  TensorEntry& tensor = *entry.value();
  if (!hold_failure_.ok()) {
    after->completed.emplace_back(std::move(operation->done), hold_failure_);
    return;
  }
  if (tensor.active != nullptr || held_ != 0) {
    tensor.waiting.push_back(std::move(operation));
    return;
  }
  Declaration declaration;
  declaration.name = request.name;
  declaration.dtype = request.dtype;
  declaration.operation = request.operation;
  declaration.root_rank = request.root_rank;
  declaration.shape = request.shape;
  declaration.compression = request.compression;
  if (request.plan != nullptr) declaration.plan = request.plan->summary;
  declaration.partition_bytes = placement_.PartitionBytes(
      declaration.total_bytes(config_.num_workers()), request.plan.get());
  Result<std::vector<PartitionTask>> tasks =
      CutIntoPartitions(declaration, tensor.id, config_.num_workers(),
                        placement_, request.plan.get());
  if (!tasks.ok()) {
    after->completed.emplace_back(std::move(operation->done), tasks.status());
    return;
  }
  operation->tasks = std::move(tasks.value());
  operation->unanswered = operation->tasks.size();
  tensor.next_round = std::max(tensor.next_round, generation_ << kRoundBits);
  operation->round = tensor.next_round++;
  ++push_pulls_;
  const Moves& moves = moves_.For(tensor.id, operation->round);
  for (uint32_t i = 0; i < operation->tasks.size(); ++i) {
    PartitionTask& task = operation->tasks[i];
    task.server = moves.ServerOf({tensor.id, i}, task.server);
  }
  for (const PartitionTask& task : operation->tasks) {
    if (left_[task.server].ok()) continue;
    after->completed.emplace_back(std::move(operation->done),
                                  left_[task.server]);
    return;
  }
  for (const PartitionTask& task : operation->tasks) {
    auto& declared = tensor.declared[task.server];
    if (declared != nullptr &&
        (declared == operation->declaration || *declared == declaration)) {
      continue;
    }
    if (operation->declaration == nullptr) {
      operation->declaration = std::make_shared<const Declaration>(declaration);
    }
    declared = operation->declaration;
    operation->undeclared.push_back(task.server);
  }
  if (timeline_ != nullptr) timeline_->Name(tensor.id, tensor.name);
  tensor.active = operation;
  after->begun.push_back(std::move(operation));
}

void WorkerClient::Dispatch(const OperationPtr& operation) {
  // On its connection a declaration precedes the pushes that it describes.
  if (!operation->undeclared.empty()) {
    auto body = std::make_shared<const std::vector<uint8_t>>(
        Encode(*operation->declaration));
    Header header;
    header.kind = Kind::kDeclare;
    header.key.tensor = operation->entry->id;
    for (uint32_t server : operation->undeclared) {
      SendBody(server, header, body);
    }
  }
  std::vector<std::vector<Queued>> queued(config_.num_servers());
  for (uint32_t i = 0; i < operation->tasks.size(); ++i) {
    const PartitionTask& task = operation->tasks[i];
    queued[task.server].push_back({operation, i, task.range.bytes,
                                   operation->request.priority,
                                   operation->turn});
  }
  for (uint32_t server = 0; server < queued.size(); ++server) {
    if (queued[server].empty()) continue;
    dispatcher_.Enqueue(server, std::move(queued[server]));
  }
}

void WorkerClient::StartPartition(uint32_t server, const Queued& item) {
  const OperationPtr& operation = item.operation;
  PartitionTask& task = operation->tasks[item.partition];
  const PushPullRequest& request = operation->request;
  Peer* peer = nullptr;
  Header header;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (operation->failure.ok() && failure_.ok() && task.Start()) {
      ++operation->sending;
      peer = servers_[server];
      header.membership_epoch = membership_epoch_;
      task.pushed_ns = NowNs();
      task.place = item.place;
    }
  }
  if (peer == nullptr) {
    dispatcher_.Sent(server, item.bytes);
    dispatcher_.Answered(server, item.bytes, item.priority, item.place, 0);
    return;
  }
  const bool silent = request.operation == Operation::kBroadcast &&
                      request.root_rank != config_.self.index;
  header.kind = Kind::kPush;
  header.key = {operation->entry->id, item.partition};
  header.round = operation->round;
  header.payload_bytes = silent ? 0 : task.range.bytes;
  Record(Span::What::kQueue, *operation, item.partition, operation->called_ns,
         task.pushed_ns);
  pushes_.fetch_add(1, std::memory_order_relaxed);
  bytes_pushed_.fetch_add(header.payload_bytes, std::memory_order_relaxed);
  peer->transport()->Send(
      peer, header,
      static_cast<const uint8_t*>(request.input) + task.range.offset,
      // A push that fails is explained by the Fail that follows the loss.
      [this, server, operation, partition = item.partition](Status) {
        PartitionSent(server, operation, partition);
      });
}

void WorkerClient::PartitionSent(uint32_t server, const OperationPtr& operation,
                                 uint32_t partition) {
  PartitionTask& task = operation->tasks[partition];
  Afterwards after;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    --operation->sending;
    task.sent_ns = NowOn(timeline_);
    Record(Span::What::kPush, *operation, partition, task.pushed_ns,
           task.sent_ns);
    CompleteIfOverLocked(operation, &after);
  }
  Finish(std::move(after));
  dispatcher_.Sent(server, task.range.bytes);
}

WorkerClient::OperationPtr WorkerClient::ActiveLocked(const Header& header) {
  TensorEntry* tensor = table_.Find(header.key.tensor);
  if (tensor == nullptr || tensor->active == nullptr ||
      tensor->active->round != header.round ||
      header.key.partition >= tensor->active->tasks.size()) {
    return nullptr;
  }
  return tensor->active;
}

Landing WorkerClient::Land(Peer* peer, const Header& header) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (header.membership_epoch != membership_epoch_) return Refuse();
  if (header.kind != Kind::kResult) {
    if (header.payload_bytes > kMaxBodyBytes) return Refuse();
    if (header.kind == Kind::kJoined && header.round >= config_.num_workers()) {
      return Refuse();
    }
    auto* body = new std::vector<uint8_t>(header.payload_bytes);
    return Landing{true, body->data(), body};
  }
  OperationPtr operation = ActiveLocked(header);
  // Of a round that was given up: read and forget.
  if (operation == nullptr || !operation->failure.ok()) return Landing();
  PartitionTask& task = operation->tasks[header.key.partition];
  const PushPullRequest& request = operation->request;
  const bool has_it = request.operation == Operation::kBroadcast &&
                      request.root_rank == config_.self.index;
  if (task.state != TaskState::kPushed || servers_[task.server] != peer ||
      header.payload_bytes != (has_it ? 0 : task.range.bytes)) {
    return Refuse();
  }
  // It cannot complete, and so stays alive, until this has arrived.
  ++operation->landing;
  task.landing_ns = NowOn(timeline_);
  return Landing{true,
                 static_cast<uint8_t*>(request.output) + task.range.offset,
                 operation.get()};
}

void WorkerClient::Arrived(Peer* peer, const Header& header,
                           const Landing& landing) {
  if (landing.context == nullptr) return;
  Afterwards after;
  if (header.kind == Kind::kResult) {
    results_.fetch_add(1, std::memory_order_relaxed);
    bytes_pulled_.fetch_add(header.payload_bytes, std::memory_order_relaxed);
    auto* landed = static_cast<PushPullOperation*>(landing.context);
    std::lock_guard<std::mutex> lock(mutex_);
    OperationPtr operation = landed->entry->active;
    --operation->landing;
    PartitionTask& task = operation->tasks[header.key.partition];
    Record(Span::What::kWait, *operation, header.key.partition, task.sent_ns,
           task.landing_ns);
    Record(Span::What::kPull, *operation, header.key.partition, task.landing_ns,
           NowOn(timeline_));
    if (operation->failure.ok() && task.Finish()) {
      --operation->unanswered;
      after.answered.push_back({task.server, task.range.bytes,
                                operation->request.priority, task.place,
                                NowNs() - task.pushed_ns});
    }
    CompleteIfOverLocked(operation, &after);
  } else {
    std::unique_ptr<std::vector<uint8_t>> body(
        static_cast<std::vector<uint8_t>*>(landing.context));
    if (header.kind == Kind::kStall) {
      LogWarning(std::string(body->begin(), body->end()) + " (says " +
                 peer->label() + ")");
      return;
    }
    if (header.kind == Kind::kJoined || header.kind == Kind::kJoinError) {
      JoinAnswered(peer, header, *body);
      return;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    OperationPtr operation = ActiveLocked(header);
    if (operation != nullptr) {
      FailLocked(operation, DecodeError(body->data(), body->size()), &after);
    }
  }
  Finish(std::move(after));
}

void WorkerClient::Abandoned(Peer*, const Header& header,
                             const Landing& landing) {
  if (landing.context == nullptr) return;
  if (header.kind != Kind::kResult) {
    delete static_cast<std::vector<uint8_t>*>(landing.context);
    return;
  }
  // The Fail that follows the loss says why.
  Afterwards after;
  {
    auto* landed = static_cast<PushPullOperation*>(landing.context);
    std::lock_guard<std::mutex> lock(mutex_);
    OperationPtr operation = landed->entry->active;
    --operation->landing;
    CompleteIfOverLocked(operation, &after);
  }
  Finish(std::move(after));
}

void WorkerClient::FailLocked(const OperationPtr& operation, const Status& why,
                              Afterwards* after) {
  if (!operation->failure.ok()) return;
  operation->failure = why;
  for (const PartitionTask& task : operation->tasks) {
    if (task.state != TaskState::kPushed) continue;
    after->answered.push_back({task.server, task.range.bytes,
                               operation->request.priority, task.place, 0});
  }
  after->given_up.emplace_back(operation, why);
  CompleteIfOverLocked(operation, after);
}

void WorkerClient::CompleteIfOverLocked(const OperationPtr& operation,
                                        Afterwards* after) {
  if (operation->sending > 0 || operation->landing > 0) return;
  if (operation->failure.ok() && operation->unanswered > 0) return;
  TensorEntry& tensor = *operation->entry;
  if (tensor.active != operation) return;  // over already
  Record(Span::What::kTensor, *operation,
         static_cast<uint32_t>(operation->tasks.size()) - 1,
         operation->called_ns, NowOn(timeline_));
  after->completed.emplace_back(std::move(operation->done), operation->failure);
  tensor.active = nullptr;
  CountRoundLocked(&tensor, after);
  BeginWaitingLocked(&tensor, after);
  JoinIfQuietLocked(after);
}

void WorkerClient::BeginWaitingLocked(TensorEntry* tensor, Afterwards* after) {
  // What ends at once makes room for the one behind it.
  while (held_ == 0 && tensor->active == nullptr && !tensor->waiting.empty()) {
    OperationPtr next = std::move(tensor->waiting.front());
    tensor->waiting.pop_front();
    BeginLocked(std::move(next), after);
  }
}

void WorkerClient::CountRoundLocked(TensorEntry* tensor, Afterwards* after) {
  if (!meter_.has_value()) return;
  if (tensor->period != period_) {
    tensor->period = period_;
    tensor->measured = 0;
  }
  if (++tensor->measured < LoadMeter::kRounds) return;
  ++period_;
  after->measure = true;
}

void WorkerClient::Measure() {
  const std::vector<Load> loads = dispatcher_.loads();
  std::vector<uint64_t> shares;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    shares = meter_->Measure(loads);
  }
  if (!shares.empty()) propose_(std::move(shares));
}

RebalanceBody WorkerClient::Hold(uint64_t version) {
  RebalanceBody answer;
  answer.version = version;
  std::lock_guard<std::mutex> lock(mutex_);
  // Who has left commits nothing any more. The coordinator is a server.
  if (!left_.front().ok()) return answer;
  held_ = version;
  const uint64_t least = generation_ << kRoundBits;
  table_.ForEach([&answer, least](TensorEntry* tensor) {
    answer.rounds.push_back({tensor->id, std::max(tensor->next_round, least)});
  });
  return answer;
}

void WorkerClient::Commit(const RebalanceBody& commit) {
  Afterwards after;
  std::string slow, quick;  // servers, for the log
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (held_ == 0 || held_ != commit.version) return;
    const std::vector<uint64_t> planned = SharesOf(config_);
    moves_.Commit(Moves(planned, commit.shares), commit.rounds);
    for (uint32_t i = 0; i < shares_.size(); ++i) {
      const uint64_t from = shares_[i], to = commit.shares[i];
      const bool loses = to < from && to < planned[i];
      if (!loses && !(to > from && from < planned[i])) continue;
      std::string& text = loses ? slow : quick;
      text += (text.empty() ? "" : ", ") + servers_[i]->label() + " sums " +
              Percent(to) + " of the model instead of " + Percent(from);
    }
    shares_ = commit.shares;
    if (meter_.has_value()) meter_->Changed(shares_);
    held_ = 0;
    table_.ForEach(
        [&](TensorEntry* tensor) { BeginWaitingLocked(tensor, &after); });
    JoinIfQuietLocked(&after);
  }
  rebalances_.fetch_add(1, std::memory_order_relaxed);
  Finish(std::move(after));
  // The worker that measured says it for all.
  if (!meter_.has_value()) return;
  if (!slow.empty()) {
    LogWarning("slower than the other servers: from now on " + slow);
  }
  if (!quick.empty()) {
    LogInfo("quicker than it was: from now on " + quick);
  }
}

void WorkerClient::Finish(Afterwards after) {
  for (const Afterwards::Answer& answer : after.answered) {
    dispatcher_.Answered(answer.server, answer.bytes, answer.priority,
                         answer.place, answer.took_ns);
  }
  for (const auto& given_up : after.given_up) {
    SendCancels(given_up.first, given_up.second);
  }
  for (const OperationPtr& operation : after.begun) Dispatch(operation);
  if (after.join) SendJoins();
  if (after.measure) Measure();
  for (auto& completed : after.completed) {
    completed.first(completed.second);
  }
  for (auto& joined : after.joined) joined.first(std::move(joined.second));
}

void WorkerClient::SendCancels(const OperationPtr& operation,
                               const Status& why) {
  std::vector<uint32_t> partitions;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (uint32_t i = 0; i < operation->tasks.size(); ++i) {
      if (operation->tasks[i].state == TaskState::kPushed) {
        partitions.push_back(i);
      }
    }
  }
  auto body = std::make_shared<const std::vector<uint8_t>>(EncodeError(why));
  for (uint32_t partition : partitions) {
    Header header;
    header.kind = Kind::kCancel;
    header.key = {operation->entry->id, partition};
    header.round = operation->round;
    SendBody(operation->tasks[partition].server, header, body);
  }
}

void WorkerClient::SendBody(uint32_t server, Header header,
                            std::shared_ptr<const std::vector<uint8_t>> body) {
  Peer* peer = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    peer = servers_[server];
    header.membership_epoch = membership_epoch_;
  }
  header.payload_bytes = body->size();
  const void* data = body->data();
  peer->transport()->Send(peer, header, data, [body](Status) {});
}

void WorkerClient::Join(JoinCallback done) {
  Afterwards after;
  Status status = CheckProcess();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (status.ok()) status = MayBeginLocked();
    for (const Status& left : left_) {
      if (status.ok()) status = left;
    }
    if (status.ok()) {
      joining_.emplace();
      joining_->done = std::move(done);
      joining_->answered.resize(servers_.size());
      JoinIfQuietLocked(&after);
    } else {
      after.joined.emplace_back(std::move(done), status);
    }
  }
  Finish(std::move(after));
}

void WorkerClient::JoinIfQuietLocked(Afterwards* after) {
  if (!joining_.has_value() || joining_->sent || allgathers_ > 0) return;
  bool quiet = true;
  table_.ForEach([&quiet](TensorEntry* tensor) {
    quiet = quiet && tensor->active == nullptr && tensor->waiting.empty();
  });
  if (!quiet) return;
  // All pushes are with the transport, so this comes behind them everywhere.
  joining_->sent = after->join = true;
}

void WorkerClient::SendJoins() {
  const auto nothing = std::make_shared<const std::vector<uint8_t>>();
  Header header;
  header.kind = Kind::kJoin;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    header.round = push_pulls_;
  }
  for (uint32_t server = 0; server < config_.num_servers(); ++server) {
    SendBody(server, header, nothing);
  }
}

void WorkerClient::JoinAnswered(Peer* peer, const Header& header,
                                const std::vector<uint8_t>& body) {
  if (header.kind == Kind::kJoinError) {
    Fail(DecodeError(body.data(), body.size()));
    return;
  }
  Afterwards after;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!joining_.has_value() || !joining_->sent) return;
    std::vector<bool>& answered = joining_->answered;
    for (uint32_t server = 0; server < servers_.size(); ++server) {
      if (servers_[server] != peer) continue;
      answered[server] = true;
      // Servers may see another order; what one of them says holds for all.
      if (server == 0)
        joining_->last_rank = static_cast<uint32_t>(header.round);
    }
    if (std::find(answered.begin(), answered.end(), false) != answered.end()) {
      return;
    }
    ++generation_;
    push_pulls_ = 0;
    after.joined.emplace_back(std::move(joining_->done), joining_->last_rank);
    joining_.reset();
  }
  Finish(std::move(after));
}

void WorkerClient::ServerLeft(uint32_t server, const Status& why) {
  Afterwards after;
  bool join_is_void = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (left_[server].ok()) left_[server] = why;
    if (server == 0 && held_ != 0) {
      // The coordinator commits no more, so nothing can begin any more.
      held_ = 0;
      hold_failure_ = why;
      table_.ForEach(
          [&](TensorEntry* tensor) { BeginWaitingLocked(tensor, &after); });
      JoinIfQuietLocked(&after);
    }
    join_is_void = joining_.has_value() && !joining_->answered[server];
    table_.ForEach([&](TensorEntry* tensor) {
      OperationPtr operation = tensor->active;
      if (operation == nullptr) return;
      for (const PartitionTask& task : operation->tasks) {
        if (task.server == server && task.state != TaskState::kDone) {
          FailLocked(operation, why, &after);
          return;
        }
      }
    });
  }
  Finish(std::move(after));
  // The other servers take this worker for joined, for ever.
  if (join_is_void) Fail(why);
}

void WorkerClient::Fail(const Status& why) {
  Afterwards after;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = why;
    if (joining_.has_value()) {
      after.joined.emplace_back(std::move(joining_->done), why);
      joining_.reset();
    }
    table_.ForEach([&](TensorEntry* tensor) {
      for (OperationPtr& operation : tensor->waiting) {
        after.completed.emplace_back(std::move(operation->done), why);
      }
      tensor->waiting.clear();
      OperationPtr operation = tensor->active;
      if (operation == nullptr || !operation->failure.ok()) return;
      // Nobody is left to be told: no cancels.
      operation->failure = why;
      CompleteIfOverLocked(operation, &after);
    });
  }
  Finish(std::move(after));
}

void WorkerClient::Record(Span::What what, const PushPullOperation& operation,
                          uint32_t partition, int64_t begin_ns,
                          int64_t end_ns) {
  // The last is so where the result was quicker than the news that all is sent.
  if (timeline_ == nullptr || begin_ns == 0 || end_ns < begin_ns) return;
  const PartitionTask& task = operation.tasks[partition];
  const bool whole = what == Span::What::kTensor;
  Span span;
  span.what = what;
  span.peer = whole ? 0 : task.server;
  span.tensor = operation.entry->id;
  span.round = operation.round;
  // A broadcast moves nothing to its root, and from nobody else.
  const bool outward = what == Span::What::kQueue || what == Span::What::kPush;
  const bool root = operation.request.root_rank == config_.self.index;
  const bool moves = whole || outward == root ||
                     operation.request.operation != Operation::kBroadcast;
  if (moves) span.bytes = (whole ? task.range.offset : 0) + task.range.bytes;
  span.partition = partition;
  span.rank = config_.self.index;
  span.begin_ns = begin_ns;
  span.end_ns = end_ns;
  timeline_->Add(span);
}

WorkerCounters WorkerClient::counters() const {
  WorkerCounters counters;
  counters.pushes = pushes_.load(std::memory_order_relaxed);
  counters.results = results_.load(std::memory_order_relaxed);
  counters.bytes_pushed = bytes_pushed_.load(std::memory_order_relaxed);
  counters.bytes_pulled = bytes_pulled_.load(std::memory_order_relaxed);
  counters.rebalances = rebalances_.load(std::memory_order_relaxed);
  return counters;
}

size_t WorkerClient::num_tensors() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return table_.size();
}

namespace {

// An allgather: first every worker learns how many rows each has, then each
// worker's rows are broadcast, straight into their place. The broadcasts
// alternate, so that all workers' links are busy in both directions.
struct Gathering {
  AllgatherRequest request;
  StatusCallback done;
  std::vector<int64_t> own;   // this worker's rows, at its rank
  std::vector<int64_t> rows;  // by rank
  std::mutex mutex;
  size_t outstanding = 0;  // guarded by mutex
  Status failure;          // guarded by mutex
};

void BroadcastEnded(const std::shared_ptr<Gathering>& gathering,
                    const Status& status) {
  Status outcome;
  {
    std::lock_guard<std::mutex> lock(gathering->mutex);
    if (gathering->failure.ok()) gathering->failure = status;
    if (--gathering->outstanding > 0) return;
    outcome = gathering->failure;
  }
  gathering->done(outcome);
}

// What a server says of the rows is no reason to write anywhere.
Status CheckRows(const AllgatherRequest& request, uint32_t self,
                 const std::vector<int64_t>& rows, uint64_t row_bytes) {
  const uint64_t limit =
      static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) /
      std::max<uint64_t>(row_bytes, 1);
  uint64_t total = 0;
  bool good = rows[self] == request.shape[0];
  for (int64_t r : rows) {
    good = good && r >= 0 && static_cast<uint64_t>(r) <= limit - total;
    if (good) total += static_cast<uint64_t>(r);
  }
  if (good) return OkStatus();
  return Internal(
      "Allgather of tensor \"" + request.name +
      "\": the server answered with numbers of rows that cannot be");
}

using PushPullFunction = std::function<void(PushPullRequest, StatusCallback)>;

void BroadcastRows(const PushPullFunction& push_pull, uint32_t self,
                   const std::shared_ptr<Gathering>& gathering) {
  const AllgatherRequest& request = gathering->request;
  uint64_t row_bytes = ElementBytes(request.dtype);
  for (size_t i = 1; i < request.shape.size(); ++i) {
    row_bytes *= static_cast<uint64_t>(request.shape[i]);
  }
  const Status status = CheckRows(request, self, gathering->rows, row_bytes);
  if (!status.ok()) {
    gathering->done(status);
    return;
  }
  Result<void*> output = request.allocate(gathering->rows);
  if (!output.ok()) {
    gathering->done(output.status());
    return;
  }
  // One for this loop, so that the last broadcast cannot end before it.
  gathering->outstanding = 1;
  auto* place = static_cast<uint8_t*>(output.value());
  for (uint32_t rank = 0; rank < gathering->rows.size(); ++rank) {
    const uint64_t bytes =
        static_cast<uint64_t>(gathering->rows[rank]) * row_bytes;
    if (bytes == 0) continue;
    PushPullRequest block;
    block.name = request.name + "/rank" + std::to_string(rank);
    block.dtype = request.dtype;
    block.operation = Operation::kBroadcast;
    block.root_rank = rank;
    block.shape = request.shape;
    block.shape[0] = gathering->rows[rank];
    block.priority = request.priority;
    block.input = request.input;
    block.output = place;
    if (rank == self)
      std::copy_n(static_cast<const uint8_t*>(request.input), bytes, place);
    place += bytes;
    {
      std::lock_guard<std::mutex> lock(gathering->mutex);
      ++gathering->outstanding;
    }
    push_pull(std::move(block), [gathering](Status status) {
      BroadcastEnded(gathering, status);
    });
  }
  BroadcastEnded(gathering, OkStatus());
}

}  // namespace

void WorkerClient::AllgatherEnded(StatusCallback done, const Status& status) {
  Afterwards after;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    --allgathers_;
    after.completed.emplace_back(std::move(done), status);
    JoinIfQuietLocked(&after);
  }
  Finish(std::move(after));
}

void WorkerClient::Allgather(AllgatherRequest request, StatusCallback done) {
  if (request.shape.empty()) {
    done(InvalidArgument("Allgather of tensor \"" + request.name +
                         "\": expected at least one dimension to concatenate "
                         "along. Received: a scalar"));
    return;
  }
  Status status = CheckProcess();
  if (status.ok()) {
    std::lock_guard<std::mutex> lock(mutex_);
    status = MayBeginLocked();
    if (status.ok()) ++allgathers_;
  }
  if (!status.ok()) {
    done(status);
    return;
  }
  auto gathering = std::make_shared<Gathering>();
  gathering->own.resize(config_.num_workers());
  gathering->own[config_.self.index] = request.shape[0];
  gathering->rows.resize(config_.num_workers());
  PushPullRequest sizes;
  sizes.name = request.name;
  sizes.dtype = request.dtype;
  sizes.operation = Operation::kAllgather;
  sizes.shape = request.shape;
  sizes.shape[0] = 0;  // the one dimension that may differ
  sizes.priority = request.priority;
  sizes.input = gathering->own.data();
  sizes.output = gathering->rows.data();
  gathering->request = std::move(request);
  gathering->done = [this, done = std::move(done)](Status status) {
    AllgatherEnded(done, status);
  };
  const uint64_t turn = dispatcher_.TakeTurn();
  PushPull(std::move(sizes), turn, [this, turn, gathering](Status status) {
    if (!status.ok()) {
      gathering->done(status);
      return;
    }
    const auto push_pull = [this, turn](PushPullRequest block,
                                        StatusCallback done) {
      PushPull(std::move(block), turn, std::move(done));
    };
    BroadcastRows(push_pull, config_.self.index, gathering);
  });
}

}  // namespace byteps

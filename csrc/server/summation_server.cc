#include "csrc/server/summation_server.h"

#include <string>
#include <utility>

#include "csrc/base/log.h"
#include "csrc/wire/partition.h"

namespace byteps {
namespace {

// Receive buffers that are kept for the next round.
constexpr size_t kKeptBytes = size_t{1} << 30;
// Adding this much takes no longer than waking a thread.
constexpr uint64_t kLittle = 64 << 10;
// Declarations and errors: a name, a shape, a sentence.
constexpr uint64_t kMaxBodyBytes = 1 << 16;

Landing Refuse() {
  Landing landing;
  landing.accept = false;
  return landing;
}

// What a server does with the message of that header, of or for worker `rank`.
Span SpanOf(Span::What what, const Header& header, uint32_t rank, uint32_t peer,
            int64_t begin_ns, int64_t end_ns) {
  Span span;
  span.what = what;
  span.peer = peer;
  span.tensor = header.key.tensor;
  span.round = header.round;
  span.bytes = header.payload_bytes;
  span.partition = header.key.partition;
  span.rank = rank;
  span.begin_ns = begin_ns;
  span.end_ns = end_ns;
  return span;
}

}  // namespace

SummationServer::SummationServer(const Config& config, Timeline* timeline,
                                 std::shared_ptr<SharedRegion> region)
    : config_(config),
      timeline_(timeline),
      buffers_(kKeptBytes, std::move(region)),
      declarations_(config.num_workers()),
      workers_(config.num_workers()),
      reduce_(std::make_unique<ReducePool>(
          config_, &buffers_,
          [this](const Outgoing& outgoing) { Send(outgoing); })) {}

SummationServer::~SummationServer() {
  Close();
  Join();
}

void SummationServer::Start(uint32_t membership_epoch) {
  membership_epoch_.store(membership_epoch);
}

void SummationServer::AddWorker(uint32_t rank, Peer* peer) {
  std::lock_guard<std::mutex> lock(mutex_);
  workers_[rank] = peer;
}

std::unique_ptr<SummationServer::Incoming> SummationServer::Admit(
    uint32_t rank, const Header& header) {
  const auto& known = declarations_[rank];
  auto it = known.find(header.key.tensor);
  if (it == known.end()) return nullptr;
  const Declaration& declared = *it->second;
  const uint64_t total = declared.total_bytes(config_.num_workers());
  const size_t element = declared.element_bytes();
  if (header.key.partition >=
      PartitionCount(total, declared.partition_bytes, element)) {
    return nullptr;
  }
  const bool silent =
      declared.operation == Operation::kBroadcast && rank != declared.root_rank;
  const uint64_t expected = silent
                                ? 0
                                : PartitionAt(header.key.partition, total,
                                              declared.partition_bytes, element)
                                      .bytes;
  if (header.payload_bytes != expected) return nullptr;
  auto incoming = std::make_unique<Incoming>();
  incoming->declaration = it->second;
  incoming->lost =
      !header.in_place && !buffers_.Take(expected, &incoming->data);
  return incoming;
}

Landing SummationServer::Land(Peer* peer, const Header& header) {
  const ProcessName& name = peer->name();
  if (name.role != Role::kWorker || name.index >= config_.num_workers() ||
      header.membership_epoch != membership_epoch_.load()) {
    return Refuse();
  }
  if (header.kind == Kind::kJoin) {
    return header.payload_bytes == 0 ? Landing() : Refuse();
  }
  std::unique_ptr<Incoming> incoming;
  if (header.kind == Kind::kPush) {
    incoming = Admit(name.index, header);
    if (incoming == nullptr) return Refuse();
  } else {
    if (header.payload_bytes > kMaxBodyBytes) return Refuse();
    incoming = std::make_unique<Incoming>();
    if (!buffers_.Take(header.payload_bytes, &incoming->data)) return Refuse();
  }
  Landing landing;
  landing.data = incoming->data.data();
  incoming->landing_ns = NowOn(timeline_);
  landing.keeps = header.kind == Kind::kPush;
  landing.context = incoming.release();
  return landing;
}

void SummationServer::Arrived(Peer* peer, const Header& header,
                              const Landing& landing) {
  std::unique_ptr<Incoming> incoming(static_cast<Incoming*>(landing.context));
  if (landing.kept != nullptr) incoming->data = std::move(*landing.kept);
  const uint32_t rank = peer->name().index;
  const Key key = header.key;
  if (header.kind == Kind::kDeclare) {
    Result<Declaration> declaration =
        DecodeDeclaration(incoming->data.data(), incoming->data.size());
    if (!declaration.ok()) {
      // Its pushes will find no declaration and be refused.
      LogWarning(peer->label() + " sent " + declaration.status().message());
      declarations_[rank].erase(key.tensor);
      return;
    }
    declarations_[rank][key.tensor] =
        std::make_shared<const Declaration>(std::move(declaration.value()));
    return;
  }
  if (header.kind == Kind::kCancel) {
    const Status why =
        DecodeError(incoming->data.data(), incoming->data.size());
    reduce_->Post(key, [key, round = header.round, why](Aggregator* aggregator,
                                                        Outbox* out) {
      aggregator->Cancel(key, round, why, out);
    });
    return;
  }
  if (header.kind == Kind::kJoin) {
    // Behind the worker's pushes, which came on the same connection.
    reduce_->PostToAll(
        [rank, push_pulls = header.round](Aggregator* aggregator, Outbox* out) {
          aggregator->WorkerJoined(rank, push_pulls, out);
        });
    return;
  }
  pushes_.fetch_add(1, std::memory_order_relaxed);
  bytes_summed_.fetch_add(header.payload_bytes, std::memory_order_relaxed);
  const int64_t arrived_ns = NowOn(timeline_);
  if (arrived_ns != 0) {
    timeline_->Name(key.tensor, incoming->declaration->name);
    timeline_->Add(SpanOf(Span::What::kReceive, header, rank, rank,
                          incoming->landing_ns, arrived_ns));
  }
  // An event must be copyable, what it carries is not.
  auto contribution = std::make_shared<Contribution>();
  contribution->rank = rank;
  contribution->round = header.round;
  contribution->declaration = std::move(incoming->declaration);
  contribution->data = std::move(incoming->data);
  contribution->lost = incoming->lost;
  auto add = [this, header, rank, arrived_ns, contribution](
                 Aggregator* aggregator, Outbox* out) {
    const int64_t begin_ns = NowOn(timeline_);
    aggregator->Push(header.key, std::move(*contribution), NowMs(), out);
    if (begin_ns == 0) return;
    const uint32_t thread = reduce_->ThreadOf(header.key);
    timeline_->Add(SpanOf(Span::What::kSumQueue, header, rank, thread,
                          arrived_ns, begin_ns));
    timeline_->Add(
        SpanOf(Span::What::kSum, header, rank, thread, begin_ns, NowNs()));
  };
  if (header.payload_bytes <= kLittle) {
    reduce_->Do(key, std::move(add));
  } else {
    reduce_->Post(key, std::move(add));
  }
}

void SummationServer::Abandoned(Peer*, const Header&, const Landing& landing) {
  delete static_cast<Incoming*>(landing.context);
}

void SummationServer::WorkerLeft(uint32_t rank, const Status& why) {
  reduce_->PostToAll([rank, why](Aggregator* aggregator, Outbox* out) {
    aggregator->WorkerLeft(rank, why, out);
  });
}

void SummationServer::Fail(const Status& why) {
  reduce_->PostToAll([why](Aggregator* aggregator, Outbox* out) {
    aggregator->Fail(why, out);
  });
}

void SummationServer::Send(const Outgoing& outgoing) {
  Peer* peer = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    peer = workers_[outgoing.rank];
  }
  if (peer == nullptr) return;
  if (outgoing.kind == Kind::kResult) {
    results_.fetch_add(1, std::memory_order_relaxed);
  }
  Header header;
  header.kind = outgoing.kind;
  header.membership_epoch = membership_epoch_.load();
  header.key = outgoing.key;
  header.round = outgoing.round;
  const void* data = nullptr;
  if (outgoing.payload != nullptr) {
    header.payload_bytes = outgoing.payload->size();
    data = outgoing.payload->data();
  }
  // Kept until sent; who cannot be reached is lost, and the runtime knows.
  peer->transport()->Send(
      peer, header, data,
      [this, header, kept = outgoing.payload, rank = outgoing.rank,
       begin_ns = NowOn(timeline_)](Status) {
        if (begin_ns == 0 || header.kind != Kind::kResult) return;
        timeline_->Add(
            SpanOf(Span::What::kReply, header, rank, rank, begin_ns, NowNs()));
      });
}

ServerCounters SummationServer::counters() const {
  ServerCounters counters;
  counters.pushes = pushes_.load(std::memory_order_relaxed);
  counters.results = results_.load(std::memory_order_relaxed);
  counters.bytes_summed = bytes_summed_.load(std::memory_order_relaxed);
  return counters;
}

void SummationServer::Close() { reduce_->Close(); }

void SummationServer::Join() { reduce_->Join(); }

}  // namespace byteps

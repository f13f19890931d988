// The contract in csrc/transport/transport.h, held against every transport. A
// new one is one more line in INSTANTIATE_TEST_SUITE_P.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "csrc/base/clock.h"
#include "csrc/transport/loopback/loopback_transport.h"
#include "csrc/transport/tcp/tcp_transport.h"
#include "tests/cpp/transport_conformance/harness.h"

namespace byteps {
namespace testing {
namespace {

// Makes transports that can reach each other.
class World {
 public:
  virtual ~World() = default;
  virtual std::unique_ptr<Transport> Make(const Config& config,
                                          Receiver* receiver) = 0;
};

class LoopbackWorld final : public World {
 public:
  std::unique_ptr<Transport> Make(const Config& config,
                                  Receiver* receiver) override {
    return MakeLoopbackTransport(config, receiver, &hub_);
  }

 private:
  LoopbackHub hub_;
};

class TcpWorld final : public World {
 public:
  std::unique_ptr<Transport> Make(const Config& config,
                                  Receiver* receiver) override {
    return MakeTcpTransport(config, receiver);
  }
};

class SharedMemoryWorld final : public World {
 public:
  std::unique_ptr<Transport> Make(const Config& config,
                                  Receiver* receiver) override {
    // Small enough that some payloads find no room.
    return MakeTcpTransport(config, receiver,
                            SharedRegion::Make(4 << 20).value());
  }
};

struct Candidate {
  const char* name;
  std::unique_ptr<World> (*make)();
};

struct Process {
  Process(World* world, const Config& config)
      : config(config), transport(world->Make(this->config, &receiver)) {}

  void Listen() {
    const Status status = transport->Listen(config.address(config.self));
    ASSERT_TRUE(status.ok()) << status.message();
  }
  Peer* Dial(const Process& other) {
    return transport->Dial(other.config.self,
                           other.config.address(other.config.self));
  }
  void Close(int64_t timeout_ms) {
    transport->Close(timeout_ms);
    receiver.Seal();
  }
  void Send(Peer* peer, uint64_t index, const std::vector<uint8_t>& payload,
            StatusCallback sent) {
    transport->Send(peer, DataHeader(index, payload.size()), payload.data(),
                    std::move(sent));
  }
  // A temporary is kept until it is sent.
  void Send(Peer* peer, uint64_t index, std::vector<uint8_t>&& payload,
            StatusCallback sent) {
    auto kept = std::make_shared<std::vector<uint8_t>>(std::move(payload));
    transport->Send(peer, DataHeader(index, kept->size()), kept->data(),
                    [kept, sent = std::move(sent)](Status status) {
                      sent(std::move(status));
                    });
  }

  Config config;
  RecordingReceiver receiver;
  std::unique_ptr<Transport> transport;
};

class TransportConformance : public ::testing::TestWithParam<Candidate> {
 protected:
  TransportConformance() : world_(GetParam().make()) {
    for (int i = 0; i < 3; ++i) {
      addresses_.push_back("127.0.0.1:" + std::to_string(FreePort()));
    }
  }

  Config ConfigOf(uint32_t index) { return WorkerConfig(addresses_, index); }
  std::unique_ptr<Process> Make(uint32_t index) {
    return std::make_unique<Process>(world_.get(), ConfigOf(index));
  }

  // Worker 0 listens, worker 1 dials; a_ and b_, to_b_ and to_a_.
  void Connect() {
    if (a_ == nullptr) a_ = Make(0);
    if (b_ == nullptr) b_ = Make(1);
    a_->Listen();
    Peer* dialed = b_->Dial(*a_);
    to_a_ = b_->receiver.WaitJoined(a_->config.self);
    to_b_ = a_->receiver.WaitJoined(b_->config.self);
    ASSERT_NE(to_b_, nullptr);
    ASSERT_EQ(to_a_, dialed);
  }

  std::unique_ptr<World> world_;
  std::vector<std::string> addresses_;
  std::unique_ptr<Process> a_, b_;
  Peer* to_a_ = nullptr;
  Peer* to_b_ = nullptr;
};

// ---- 1 Whole and in order

TEST_P(TransportConformance, PeersKnowWhoIsThere) {
  Connect();
  EXPECT_EQ(to_b_->name(), b_->config.self);
  EXPECT_EQ(to_b_->label(), "worker 1 (" + addresses_[1] + ")");
  EXPECT_EQ(to_a_->label(), "worker 0 (" + addresses_[0] + ")");
  EXPECT_EQ(to_a_->transport(), b_->transport.get());
  EXPECT_EQ(to_a_->progress(), "");
}

TEST_P(TransportConformance, MessagesArriveWholeAndInOrderBothWays) {
  Connect();
  const std::vector<uint64_t> sizes = {
      0,     1,     15,    16,     47,      48,      49,      1000,
      65487, 65488, 65489, 65535,  65536,   65537,   131072,  1 << 20,
      0,     0,     16,    500000, 3 << 20, 4096000, 7654321, 2};
  std::vector<std::vector<uint8_t>> from_a, from_b;
  for (size_t i = 0; i < sizes.size(); ++i) {
    from_a.push_back(PatternOf(0, i, sizes[i]));
    from_b.push_back(PatternOf(1, i, sizes[i]));
  }
  Completions sent;
  for (size_t i = 0; i < sizes.size(); ++i) {
    a_->Send(to_b_, i, from_a[i], sent.Next());
    b_->Send(to_a_, i, from_b[i], sent.Next());
  }
  ASSERT_TRUE(sent.WaitAll());
  EXPECT_EQ(sent.failed(), 0u);
  for (auto* end : {a_.get(), b_.get()}) {
    ASSERT_TRUE(end->receiver.WaitMessages(sizes.size()));
    const std::vector<Message> messages = end->receiver.messages();
    ASSERT_EQ(messages.size(), sizes.size());
    const auto& expected = end == a_.get() ? from_b : from_a;
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(messages[i].header.round, i);
      EXPECT_EQ(messages[i].header.key.partition, i);
      EXPECT_TRUE(messages[i].payload == expected[i]) << "message " << i;
    }
  }
}

TEST_P(TransportConformance, HeaderFieldsArriveAsSent) {
  Connect();
  Header header;
  header.kind = Kind::kResult;
  header.flags = 0xbeef;
  header.membership_epoch = 0xdeadbeef;
  header.key = {0xfedcba9876543210, 0x89abcdef};
  header.round = 0x1122334455667788;
  Completions sent;
  a_->transport->Send(to_b_, header, nullptr, sent.Next());
  ASSERT_TRUE(b_->receiver.WaitMessages(1));
  const Header got = b_->receiver.messages()[0].header;
  EXPECT_EQ(got.kind, header.kind);
  EXPECT_EQ(got.flags, header.flags);
  EXPECT_EQ(got.membership_epoch, header.membership_epoch);
  EXPECT_TRUE(got.key == header.key);
  EXPECT_EQ(got.round, header.round);
  EXPECT_EQ(got.payload_bytes, 0u);
}

TEST_P(TransportConformance, ManySmallMessages) {
  Connect();
  constexpr size_t kMessages = 10000;
  std::vector<std::vector<uint8_t>> payloads;
  for (size_t i = 0; i < kMessages; ++i)
    payloads.push_back(PatternOf(1, i, 16));
  Completions sent;
  for (size_t i = 0; i < kMessages; ++i) {
    b_->Send(to_a_, i, payloads[i], sent.Next());
  }
  ASSERT_TRUE(a_->receiver.WaitMessages(kMessages));
  const std::vector<Message> messages = a_->receiver.messages();
  for (size_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(messages[i].header.round, i);
    ASSERT_TRUE(messages[i].payload == payloads[i]);
  }
}

TEST_P(TransportConformance, OneLargeMessage) {
  Connect();
  const std::vector<uint8_t> payload = PatternOf(1, 0, 64 << 20);
  Completions sent;
  b_->Send(to_a_, 0, payload, sent.Next());
  ASSERT_TRUE(a_->receiver.WaitMessages(1));
  EXPECT_TRUE(a_->receiver.messages()[0].payload == payload);
}

// ---- 2 Every Send completes exactly once

TEST_P(TransportConformance, PayloadIsNotTouchedAfterSent) {
  Connect();
  Completions sent;
  for (size_t i = 0; i < 50; ++i) {
    auto payload =
        std::make_shared<std::vector<uint8_t>>(PatternOf(1, i, 300000));
    const uint8_t* data = payload->data();
    // Freed by the callback: a later touch is found by the sanitizers, and
    // otherwise by the comparison.
    b_->transport->Send(to_a_, DataHeader(i, payload->size()), data,
                        sent.Next([payload](Status) mutable {
                          std::fill(payload->begin(), payload->end(), 0);
                          payload.reset();
                        }));
  }
  ASSERT_TRUE(a_->receiver.WaitMessages(50));
  const std::vector<Message> messages = a_->receiver.messages();
  for (size_t i = 0; i < 50; ++i) {
    EXPECT_TRUE(messages[i].payload == PatternOf(1, i, 300000));
  }
}

TEST_P(TransportConformance, SendsCompleteWhenThePeerGoes) {
  Connect();
  const std::vector<uint8_t> payload = PatternOf(1, 0, 8 << 20);
  Completions sent;
  for (int i = 0; i < 8; ++i) b_->Send(to_a_, i, payload, sent.Next());
  a_->Close(0);
  ASSERT_TRUE(sent.WaitAll());
  Status why;
  ASSERT_TRUE(b_->receiver.WaitLost(to_a_, &why));
  EXPECT_EQ(why.code(), Code::kUnavailable);
  b_->Send(to_a_, 9, payload, sent.Next());
  ASSERT_TRUE(sent.WaitAll());
  EXPECT_GE(sent.failed(), 1u);
  EXPECT_EQ(sent.last_error().code(), Code::kUnavailable);
  EXPECT_NE(sent.last_error().message().find(to_a_->label()),
            std::string::npos);
}

TEST_P(TransportConformance, SendsCompleteWithCancelledAfterClose) {
  Connect();
  b_->Close(0);
  Completions sent;
  b_->Send(to_a_, 0, {1, 2, 3}, sent.Next());
  ASSERT_TRUE(sent.WaitAll());
  EXPECT_EQ(sent.failed(), 1u);
  EXPECT_EQ(sent.last_error().code(), Code::kCancelled);
}

TEST_P(TransportConformance, SendBeforeJoinedFails) {
  a_ = Make(0);
  b_ = Make(1);
  Peer* peer = b_->Dial(*a_);
  Completions sent;
  b_->Send(peer, 0, {1}, sent.Next());
  ASSERT_TRUE(sent.WaitAll());
  EXPECT_EQ(sent.failed(), 1u);
}

TEST_P(TransportConformance, CallbacksMaySend) {
  constexpr uint64_t kHops = 5000;
  a_ = Make(0);
  b_ = Make(1);
  static const std::vector<uint8_t> payload = {1, 2, 3, 4, 5};
  Completions sent;
  auto reply = [&](Process* self) {
    return [&sent, self](Peer* peer, const Message& message) {
      if (message.header.round >= kHops) return;
      self->Send(peer, message.header.round + 1, payload, sent.Next());
    };
  };
  a_->receiver.on_arrived = reply(a_.get());
  b_->receiver.on_arrived = reply(b_.get());
  Connect();
  b_->Send(to_a_, 0, payload, sent.Next());
  ASSERT_TRUE(a_->receiver.WaitMessages(kHops / 2 + 1));
}

TEST_P(TransportConformance, SentMaySendAgainAndAgain) {
  Connect();
  constexpr int kChain = 50000;  // deeper than a stack of nested calls
  static const std::vector<uint8_t> payload = {1};
  Completions sent;
  std::atomic<int> left{kChain};
  std::function<void(Status)> next = [&](Status) {
    const int index = left.fetch_sub(1);
    if (index > 0) b_->Send(to_a_, index, payload, sent.Next(next));
  };
  next(OkStatus());
  ASSERT_TRUE(a_->receiver.WaitMessages(kChain));
}

TEST_P(TransportConformance, ReceiverMaySendFromJoined) {
  a_ = Make(0);
  b_ = Make(1);
  static const std::vector<uint8_t> payload = {7};
  Completions sent;
  a_->receiver.on_joined = [&](Peer* peer) {
    a_->Send(peer, 70, payload, sent.Next());
  };
  b_->receiver.on_joined = [&](Peer* peer) {
    b_->Send(peer, 80, payload, sent.Next());
  };
  Connect();
  ASSERT_TRUE(a_->receiver.WaitMessages(1));
  ASSERT_TRUE(b_->receiver.WaitMessages(1));
  EXPECT_EQ(b_->receiver.messages()[0].header.round, 70u);
}

// ---- 3 Lost: once, soon, after all sends

TEST_P(TransportConformance, LostComesSoonAndAfterAllSends) {
  b_ = Make(1);
  Completions sent;
  std::atomic<bool> all_before{false};
  b_->receiver.on_lost = [&](Peer*, const Status&) {
    all_before.store(sent.ok() + sent.failed() == sent.given());
  };
  Connect();
  const std::vector<uint8_t> payload = PatternOf(1, 0, 4 << 20);
  for (int i = 0; i < 20; ++i) b_->Send(to_a_, i, payload, sent.Next());
  const int64_t begin = NowMs();
  a_->Close(0);
  Status why;
  ASSERT_TRUE(b_->receiver.WaitLost(to_a_, &why));
  EXPECT_LT(NowMs() - begin, 5000);
  EXPECT_TRUE(all_before.load());
  EXPECT_NE(why.message().find("worker 0 (" + addresses_[0] + ")"),
            std::string::npos)
      << why.message();
  EXPECT_EQ(b_->receiver.lost_count(), 1u);
}

TEST_P(TransportConformance, ExpectedEndIsCancelled) {
  Connect();
  b_->transport->ExpectEnd(to_a_);
  a_->Close(1000);
  Status why;
  ASSERT_TRUE(b_->receiver.WaitLost(to_a_, &why));
  EXPECT_EQ(why.code(), Code::kCancelled);
}

TEST_P(TransportConformance, CloseSaysLostForEveryPeer) {
  Connect();
  // Nobody will ever be there.
  Peer* absent = b_->transport->Dial({Role::kWorker, 2}, addresses_[2]);
  b_->Close(0);
  Status why;
  ASSERT_TRUE(b_->receiver.WaitLost(to_a_, &why));
  EXPECT_EQ(why.code(), Code::kCancelled);
  ASSERT_TRUE(b_->receiver.WaitLost(absent, &why));
  EXPECT_EQ(why.code(), Code::kCancelled);
}

// ---- 4 A lost peer stays lost; another Dial makes another

TEST_P(TransportConformance, AfterALossAnotherDialMakesAnotherPeer) {
  Connect();
  Peer* first = to_a_;
  a_->Close(0);
  Status why;
  ASSERT_TRUE(b_->receiver.WaitLost(first, &why));
  a_ = Make(0);  // the same address, at once
  Connect();
  EXPECT_NE(to_a_, first);
  Completions sent;
  b_->Send(first, 1, {1}, sent.Next());
  ASSERT_TRUE(sent.WaitAll());
  EXPECT_EQ(sent.failed(), 1u);
  b_->Send(to_a_, 2, {2}, sent.Next());
  ASSERT_TRUE(a_->receiver.WaitMessages(1));
  EXPECT_EQ(a_->receiver.messages()[0].header.round, 2u);
}

// ---- 5 Landing

TEST_P(TransportConformance, ARefusedLandingDropsThePeer) {
  a_ = Make(0);
  a_->receiver.accepts = [](Peer*, const Header& header) {
    return header.round != 3;
  };
  Connect();
  const std::vector<uint8_t> payload = PatternOf(1, 0, 100000);
  Completions sent;
  for (int i = 0; i < 6; ++i) b_->Send(to_a_, i, payload, sent.Next());
  Status why;
  ASSERT_TRUE(a_->receiver.WaitLost(to_b_, &why));
  EXPECT_NE(why.message().find("broke the protocol"), std::string::npos);
  EXPECT_NE(why.message().find("push of key 0123456789abcdef/3"),
            std::string::npos)
      << why.message();
  EXPECT_EQ(a_->receiver.message_count(), 3u);
  ASSERT_TRUE(b_->receiver.WaitLost(to_a_, &why));
}

TEST_P(TransportConformance, TooLargeAMessageDropsThePeerBeforeLand) {
  Config config = ConfigOf(0);
  config.max_message_bytes = 1000;
  a_ = std::make_unique<Process>(world_.get(), config);
  Connect();
  Completions sent;
  b_->Send(to_a_, 0, PatternOf(1, 0, 1000), sent.Next());
  ASSERT_TRUE(a_->receiver.WaitMessages(1));
  const std::vector<uint8_t> payload = PatternOf(1, 1, 1001);
  b_->Send(to_a_, 1, payload, sent.Next());
  Status why;
  ASSERT_TRUE(a_->receiver.WaitLost(to_b_, &why));
  EXPECT_NE(why.message().find("1001"), std::string::npos) << why.message();
  ASSERT_TRUE(b_->receiver.WaitLost(to_a_, &why));
  EXPECT_EQ(a_->receiver.message_count(), 1u);
}

TEST_P(TransportConformance, PayloadsMayBeDiscarded) {
  a_ = Make(0);
  a_->receiver.discards = [](Peer*, const Header& header) {
    return header.round % 2 == 0;
  };
  Connect();
  std::vector<std::vector<uint8_t>> payloads;
  for (int i = 0; i < 10; ++i) payloads.push_back(PatternOf(1, i, 200000));
  Completions sent;
  for (int i = 0; i < 10; ++i) b_->Send(to_a_, i, payloads[i], sent.Next());
  ASSERT_TRUE(a_->receiver.WaitMessages(10));
  const std::vector<Message> messages = a_->receiver.messages();
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(messages[i].payload ==
                (i % 2 == 0 ? std::vector<uint8_t>() : payloads[i]));
  }
}

// ---- 6 Idle is free

TEST_P(TransportConformance, IdleUsesNoCpu) {
  Connect();
  auto cpu_us = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
           usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
  };
  // One that is being dialed in vain belongs to it.
  b_->transport->Dial({Role::kWorker, 2}, addresses_[2]);
  const int64_t before = cpu_us();
  EXPECT_TRUE(b_->receiver.NobodyLostFor(2000));
  EXPECT_LT(cpu_us() - before, 20000);  // 1 % of 2 s
}

// ---- 7 Any thread sends

TEST_P(TransportConformance, ManyThreadsSend) {
  Connect();
  constexpr int kThreads = 8;
  constexpr uint64_t kEach = 500;
  std::vector<std::vector<uint8_t>> payloads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    payloads.push_back(PatternOf(t, 0, 100 + 3000 * t));
  }
  Completions sent;
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kEach; ++i) {
        Header header = DataHeader(i, payloads[t].size());
        header.key.partition = t;
        b_->transport->Send(to_a_, header, payloads[t].data(), sent.Next());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(a_->receiver.WaitMessages(kThreads * kEach));
  std::vector<uint64_t> next(kThreads, 0);
  for (const Message& message : a_->receiver.messages()) {
    const uint32_t t = message.header.key.partition;
    ASSERT_LT(t, static_cast<uint32_t>(kThreads));
    EXPECT_EQ(message.header.round, next[t]++);
    ASSERT_TRUE(message.payload == payloads[t]);
  }
}

TEST_P(TransportConformance, SendDoesNotWaitForTheOtherEnd) {
  a_ = Make(0);
  auto gate = std::make_shared<Gate>();
  a_->receiver.on_arrived = [gate](Peer*, const Message&) { gate->Pass(); };
  Connect();
  // Far more than the kernel buffers, to an end that does not read.
  const std::vector<uint8_t> payload = PatternOf(1, 0, 4 << 20);
  Completions sent;
  const int64_t begin = NowMs();
  for (int i = 0; i < 16; ++i) b_->Send(to_a_, i, payload, sent.Next());
  EXPECT_LT(NowMs() - begin, 5000);
  EXPECT_LT(sent.ok(), 16u);
  gate->Open();
  ASSERT_TRUE(a_->receiver.WaitMessages(16));
}

// ---- 8 Not in a forked child

TEST_P(TransportConformance, AForkedChildMayNotSend) {
  Connect();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int calls = 0;
    Code code = Code::kOk;
    b_->transport->Send(to_a_, DataHeader(666, 0), nullptr, [&](Status status) {
      ++calls;
      code = status.code();
    });
    b_->transport->Close(1000);
    b_->transport.reset();
    _exit(calls == 1 && code == Code::kFailedPrecondition ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  // The parent's connection has not suffered.
  Completions sent;
  b_->Send(to_a_, 1, {1}, sent.Next());
  ASSERT_TRUE(a_->receiver.WaitMessages(1));
  EXPECT_EQ(a_->receiver.messages()[0].header.round, 1u);
}

// ---- Connecting

TEST_P(TransportConformance, DialWaitsForTheListener) {
  a_ = Make(0);
  b_ = Make(1);
  Peer* peer = b_->Dial(*a_);
  EXPECT_TRUE(b_->receiver.NobodyLostFor(300));
  EXPECT_FALSE(peer->progress().empty());
  a_->Listen();
  EXPECT_EQ(b_->receiver.WaitJoined(a_->config.self), peer);
}

TEST_P(TransportConformance, TheAddressMayBeTakenByOneOnly) {
  a_ = Make(0);
  a_->Listen();
  auto other = Make(0);
  const Status status = other->transport->Listen(addresses_[0]);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "cannot listen on " + addresses_[0] + ": Address already in use");
}

TEST_P(TransportConformance, ASecondConnectionOfOneNameIsRefused) {
  Connect();
  auto twin = Make(1);
  Peer* peer = twin->Dial(*a_);
  Status why;
  ASSERT_TRUE(twin->receiver.WaitRefused(peer, &why));
  EXPECT_NE(why.message().find("worker 1 (" + addresses_[1] +
                               ") is connected already"),
            std::string::npos)
      << why.message();
  Completions sent;
  b_->Send(to_a_, 5, {1}, sent.Next());
  ASSERT_TRUE(a_->receiver.WaitMessages(1));
}

TEST_P(TransportConformance, AnotherJobIsRefused) {
  a_ = Make(0);
  Config config = ConfigOf(1);
  config.job_token = "another";
  b_ = std::make_unique<Process>(world_.get(), config);
  a_->Listen();
  Peer* peer = b_->Dial(*a_);
  Status why;
  ASSERT_TRUE(b_->receiver.WaitRefused(peer, &why));
  EXPECT_EQ(why.code(), Code::kFailedPrecondition);
  EXPECT_NE(why.message().find("another job's token"), std::string::npos)
      << why.message();
  Completions sent;
  b_->Send(peer, 0, {1}, sent.Next());
  ASSERT_TRUE(sent.WaitAll());
  EXPECT_EQ(sent.failed(), 1u);
}

TEST_P(TransportConformance, AnotherClusterIsRefused) {
  a_ = Make(0);
  Config config = ConfigOf(1);
  config.servers.push_back("127.0.0.1:1");
  config.cluster_digest = "other";
  b_ = std::make_unique<Process>(world_.get(), config);
  a_->Listen();
  Peer* peer = b_->Dial(*a_);
  Status why;
  ASSERT_TRUE(b_->receiver.WaitRefused(peer, &why));
  EXPECT_NE(why.message().find(
                "worker 1 describes a cluster of 3 workers and 1 dedicated "
                "server, worker 0 one of 3 workers and no dedicated server"),
            std::string::npos)
      << why.message();
}

TEST_P(TransportConformance, ThreeProcessesAllTalk) {
  std::vector<std::unique_ptr<Process>> all;
  for (uint32_t i = 0; i < 3; ++i) {
    all.push_back(Make(i));
    all[i]->Listen();
  }
  Completions sent;
  std::vector<std::vector<uint8_t>> payloads;
  for (uint32_t i = 0; i < 3; ++i) payloads.push_back(PatternOf(i, 0, 99999));
  for (uint32_t i = 0; i < 3; ++i) {
    for (uint32_t j = 0; j < i; ++j) all[i]->Dial(*all[j]);
  }
  for (uint32_t i = 0; i < 3; ++i) {
    for (uint32_t j = 0; j < 3; ++j) {
      if (i == j) continue;
      Peer* peer = all[i]->receiver.WaitJoined(all[j]->config.self);
      ASSERT_NE(peer, nullptr);
      all[i]->Send(peer, i, payloads[i], sent.Next());
    }
  }
  for (auto& process : all) {
    ASSERT_TRUE(process->receiver.WaitMessages(2));
    for (const Message& message : process->receiver.messages()) {
      EXPECT_EQ(message.peer->name().index, message.header.round);
      EXPECT_TRUE(message.payload == payloads[message.header.round]);
    }
  }
}

// ---- Closing

TEST_P(TransportConformance, CloseFlushesWhatWasSent) {
  Connect();
  a_->transport->ExpectEnd(to_b_);
  std::vector<std::vector<uint8_t>> payloads;
  for (int i = 0; i < 10; ++i) payloads.push_back(PatternOf(1, i, 4 << 20));
  Completions sent;
  for (int i = 0; i < 10; ++i) b_->Send(to_a_, i, payloads[i], sent.Next());
  b_->Close(kPatienceMs);
  EXPECT_EQ(sent.ok(), 10u);
  ASSERT_TRUE(a_->receiver.WaitMessages(10));
  const std::vector<Message> messages = a_->receiver.messages();
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(messages[i].payload == payloads[i]);
  }
  Status why;
  ASSERT_TRUE(a_->receiver.WaitLost(to_b_, &why));
  EXPECT_EQ(why.code(), Code::kCancelled);
}

TEST_P(TransportConformance, BothMayCloseAtOnceAndNothingIsLost) {
  Connect();
  a_->transport->ExpectEnd(to_b_);
  b_->transport->ExpectEnd(to_a_);
  const std::vector<uint8_t> payload = PatternOf(1, 0, 5 << 20);
  Completions sent;
  for (int i = 0; i < 5; ++i) {
    a_->Send(to_b_, i, payload, sent.Next());
    b_->Send(to_a_, i, payload, sent.Next());
  }
  std::thread other([&] { a_->Close(kPatienceMs); });
  b_->Close(kPatienceMs);
  other.join();
  EXPECT_EQ(sent.ok(), 10u);
  EXPECT_EQ(a_->receiver.message_count(), 5u);
  EXPECT_EQ(b_->receiver.message_count(), 5u);
}

TEST_P(TransportConformance, CloseGivesUpAtItsDeadline) {
  a_ = Make(0);
  auto gate = std::make_shared<Gate>();
  a_->receiver.on_arrived = [gate](Peer*, const Message&) { gate->Pass(); };
  Connect();
  const std::vector<uint8_t> payload = PatternOf(1, 0, 16 << 20);
  Completions sent;
  for (int i = 0; i < 4; ++i) b_->Send(to_a_, i, payload, sent.Next());
  const int64_t begin = NowMs();
  b_->Close(200);
  EXPECT_LT(NowMs() - begin, 10000);
  EXPECT_EQ(sent.ok() + sent.failed(), 4u);
  gate->Open();
}

TEST_P(TransportConformance, CloseWhileThreadsSend) {
  Connect();
  std::atomic<bool> stop{false};
  const std::vector<uint8_t> payload = PatternOf(1, 0, 100000);
  Completions sent;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      while (!stop.load()) {
        std::mutex mutex;
        std::condition_variable done;
        bool called = false;
        b_->Send(to_a_, 0, payload, sent.Next([&](Status) {
          std::lock_guard<std::mutex> lock(mutex);
          called = true;
          done.notify_one();
        }));
        std::unique_lock<std::mutex> lock(mutex);
        done.wait(lock, [&] { return called; });
      }
    });
  }
  EXPECT_TRUE(a_->receiver.WaitMessages(100));
  b_->Close(100);
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  Status why;
  EXPECT_TRUE(a_->receiver.WaitLost(to_b_, &why));
}

TEST_P(TransportConformance, CloseIsIdempotentAndForAnyThread) {
  Connect();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { b_->transport->Close(1000); });
  }
  for (std::thread& thread : threads) thread.join();
  b_->receiver.Seal();
  b_->transport->Close(1000);
  EXPECT_FALSE(b_->transport->Listen(addresses_[1]).ok());
  b_->Dial(*a_);
}

TEST_P(TransportConformance, CloseWithoutPeersReturnsAtOnce) {
  a_ = Make(0);
  a_->Listen();
  const int64_t begin = NowMs();
  a_->Close(kPatienceMs);
  EXPECT_LT(NowMs() - begin, 5000);
}

INSTANTIATE_TEST_SUITE_P(
    , TransportConformance,
    ::testing::Values(Candidate{"loopback",
                                []() -> std::unique_ptr<World> {
                                  return std::make_unique<LoopbackWorld>();
                                }},
                      Candidate{"tcp",
                                []() -> std::unique_ptr<World> {
                                  return std::make_unique<TcpWorld>();
                                }},
                      Candidate{"shared_memory",
                                []() -> std::unique_ptr<World> {
                                  return std::make_unique<SharedMemoryWorld>();
                                }}),
    [](const ::testing::TestParamInfo<Candidate>& info) {
      return std::string(info.param.name);
    });

}  // namespace
}  // namespace testing
}  // namespace byteps

#include "csrc/worker/worker_client.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <vector>

#include "csrc/worker/shares.h"
#include "tests/cpp/fake_transport.h"

namespace byteps {
namespace {

// A request with its memory and its outcome.
struct Call {
  explicit Call(size_t count, float value = 1) : data(count), doubled(count) {
    for (size_t i = 0; i < count; ++i) {
      data[i] = value + 10 * static_cast<float>(i);
      doubled[i] = 2 * data[i];
    }
  }
  void Run(WorkerClient* client, const std::string& name = "t",
           int64_t priority = 0) {
    PushPullRequest request;
    request.name = name;
    request.shape = {static_cast<int64_t>(data.size())};
    request.priority = priority;
    request.input = request.output = data.data();
    client->PushPull(std::move(request), [this](Status status) {
      EXPECT_FALSE(outcome.has_value()) << "called twice";
      outcome = status;
    });
  }
  std::vector<float> data;
  std::vector<float> doubled;  // what the servers of this test make of it
  std::optional<Status> outcome;
};

// A join and its outcome.
struct JoinCall {
  void Run(WorkerClient* client) {
    client->Join([this](Result<uint32_t> last_rank) {
      EXPECT_FALSE(outcome.has_value()) << "called twice";
      outcome = std::move(last_rank);
    });
  }
  std::optional<Result<uint32_t>> outcome;
};

class WorkerClientTest : public testing::Test {
 protected:
  explicit WorkerClientTest(uint64_t credit = 1 << 20) {
    config_.workers = {"a:1", "b:1"};
    config_.servers = {"s:1", "s:2"};
    config_.partition_bytes = 16;
    config_.credit_bytes = credit;
    client_ = std::make_unique<WorkerClient>(config_);
    for (uint32_t i = 0; i < 2; ++i) {
      servers_.push_back(transport_.Add({Role::kServer, i}));
    }
  }
  void Start() { client_->Start(servers_, 1); }

  // The servers answer every push so far with twice what was pushed.
  void Answer() {
    std::vector<SentMessage> messages = std::move(transport_.messages);
    transport_.messages.clear();
    for (SentMessage& message : messages) {
      if (message.sent) message.sent(OkStatus());
      if (message.header.kind != Kind::kPush) continue;
      Header header = message.header;
      header.kind = Kind::kResult;
      const Landing landing = client_->Land(message.peer, header);
      ASSERT_TRUE(landing.accept);
      auto* out = static_cast<float*>(landing.data);
      for (size_t i = 0; i < message.payload.size() / sizeof(float); ++i) {
        float value;
        std::memcpy(&value, &message.payload[i * sizeof(float)], sizeof(value));
        out[i] = 2 * value;
      }
      client_->Arrived(message.peer, header, landing);
    }
  }

  // A server tells the worker something about its join.
  bool Tell(Peer* server, Kind kind, uint64_t round = 0,
            const std::vector<uint8_t>& body = {}) {
    Header header;
    header.kind = kind;
    header.membership_epoch = 1;
    header.round = round;
    header.payload_bytes = body.size();
    const Landing landing = client_->Land(server, header);
    if (!landing.accept) return false;
    if (!body.empty()) std::memcpy(landing.data, body.data(), body.size());
    client_->Arrived(server, header, landing);
    return true;
  }

  Config config_;
  FakeTransport transport_;
  std::vector<Peer*> servers_;
  std::unique_ptr<WorkerClient> client_;
};

TEST_F(WorkerClientTest, BeforeTheStartARequestFails) {
  Call call(4);
  call.Run(client_.get());
  ASSERT_TRUE(call.outcome.has_value());
  EXPECT_EQ(call.outcome->code(), Code::kFailedPrecondition);
}

TEST_F(WorkerClientTest, EveryPartitionGoesOutAndComesBack) {
  Start();
  Call call(10, 3);
  call.Run(client_.get());
  EXPECT_EQ(transport_.Count(Kind::kPush), 3u);
  EXPECT_EQ(transport_.Count(Kind::kDeclare), 2u);  // one for each server
  EXPECT_EQ(transport_.messages[0].header.kind, Kind::kDeclare);
  EXPECT_FALSE(call.outcome.has_value());
  Answer();
  ASSERT_TRUE(call.outcome.has_value());
  EXPECT_TRUE(call.outcome->ok());
  EXPECT_EQ(call.data, call.doubled);
  EXPECT_EQ(client_->counters().pushes, 3u);
  EXPECT_EQ(client_->counters().results, 3u);
}

TEST_F(WorkerClientTest, ATensorIsDeclaredOnceUntilItChanges) {
  Start();
  Call first(4), second(4), longer(5);
  first.Run(client_.get());
  EXPECT_EQ(transport_.Count(Kind::kDeclare), 1u);
  Answer();
  second.Run(client_.get());
  EXPECT_EQ(transport_.Count(Kind::kDeclare), 0u);
  Answer();
  longer.Run(client_.get());
  EXPECT_EQ(transport_.Count(Kind::kDeclare), 2u);
  Answer();
  EXPECT_TRUE(longer.outcome->ok());
}

TEST_F(WorkerClientTest, ASecondCallOnANameWaitsForTheFirst) {
  Start();
  Call first(4, 1), second(4, 5), other(4, 9);
  first.Run(client_.get());
  second.Run(client_.get());
  other.Run(client_.get(), "other");
  EXPECT_EQ(transport_.Count(Kind::kPush), 2u);
  Answer();
  EXPECT_TRUE(first.outcome.has_value());
  EXPECT_TRUE(other.outcome.has_value());
  EXPECT_FALSE(second.outcome.has_value());
  ASSERT_EQ(transport_.Count(Kind::kPush), 1u);
  EXPECT_EQ(transport_.messages.back().header.round, 1u);
  Answer();
  EXPECT_EQ(second.data, second.doubled);
}

TEST_F(WorkerClientTest, ARoundErrorEndsTheCallOnceAllIsQuiet) {
  Start();
  Call call(8);
  call.Run(client_.get());
  std::vector<SentMessage> messages = std::move(transport_.messages);
  transport_.messages.clear();
  for (SentMessage& message : messages) {
    if (message.header.kind != Kind::kPush) {
      if (message.sent) message.sent(OkStatus());
      continue;
    }
    const std::vector<uint8_t> body = EncodeError(InvalidArgument("differs"));
    Header header = message.header;
    header.kind = Kind::kRoundError;
    header.payload_bytes = body.size();
    const Landing landing = client_->Land(message.peer, header);
    ASSERT_TRUE(landing.accept);
    std::memcpy(landing.data, body.data(), body.size());
    client_->Arrived(message.peer, header, landing);
    // The transport still reads the input.
    EXPECT_FALSE(call.outcome.has_value());
    if (&message == &messages.back()) break;
  }
  for (SentMessage& message : messages) {
    if (message.header.kind == Kind::kPush) message.sent(OkStatus());
  }
  ASSERT_TRUE(call.outcome.has_value());
  EXPECT_EQ(call.outcome->message(), "differs");
}

TEST_F(WorkerClientTest, AFailureEndsWhatIsThereAndWhatComes) {
  Start();
  Call under_way(4), queued(4), later(4);
  under_way.Run(client_.get());
  queued.Run(client_.get());
  client_->Fail(Unavailable("server 1 is gone"));
  client_->Fail(Unavailable("another reason"));
  EXPECT_FALSE(under_way.outcome.has_value());  // its input is still read
  transport_.Complete(Unavailable("no connection"));
  later.Run(client_.get());
  for (Call* call : {&under_way, &queued, &later}) {
    ASSERT_TRUE(call->outcome.has_value());
    EXPECT_EQ(call->outcome->message(), "server 1 is gone");
  }
}

TEST_F(WorkerClientTest, AServerThatLeftFailsOnlyWhatNeedsIt) {
  Start();
  Call both(8);  // has a partition at each server
  both.Run(client_.get());
  client_->ServerLeft(1, Unavailable("server 1 left the job"));
  transport_.Complete(OkStatus());
  ASSERT_TRUE(both.outcome.has_value());
  EXPECT_EQ(both.outcome->message(), "server 1 left the job");
}

TEST_F(WorkerClientTest, WhatEndsAtOnceDoesNotHoldUpTheNext) {
  Start();
  Call first(4), last(4);
  first.Run(client_.get());
  std::optional<Status> hopeless;
  PushPullRequest request;
  request.name = "t";
  request.shape = {int64_t{1} << 40};  // too many partitions of 16 bytes
  client_->PushPull(request, [&](Status s) { hopeless = s; });
  last.Run(client_.get());
  Answer();
  ASSERT_TRUE(hopeless.has_value());
  EXPECT_EQ(hopeless->code(), Code::kInvalidArgument);
  EXPECT_FALSE(last.outcome.has_value());
  Answer();
  ASSERT_TRUE(last.outcome.has_value());
  EXPECT_EQ(last.data, last.doubled);
}

TEST_F(WorkerClientTest, AThousandQueuedCallsEndWhenTheirServerLeft) {
  Start();
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 1000; ++i) {
    calls.push_back(std::make_unique<Call>(8));
    calls.back()->Run(client_.get());
  }
  client_->ServerLeft(1, Unavailable("server 1 left the job"));
  transport_.Complete(OkStatus());
  for (auto& call : calls) {
    ASSERT_TRUE(call->outcome.has_value());
    EXPECT_EQ(call->outcome->message(), "server 1 left the job");
  }
}

TEST_F(WorkerClientTest, AResultLandsOnlyWhereItBelongs) {
  Start();
  Call call(4);
  call.Run(client_.get());
  const Header good = [this] {
    Header header = transport_.messages.back().header;
    header.kind = Kind::kResult;
    return header;
  }();
  Peer* peer = transport_.messages.back().peer;
  Header wrong = good;
  wrong.payload_bytes = 12;
  EXPECT_FALSE(client_->Land(peer, wrong).accept);
  wrong = good;
  wrong.membership_epoch = 9;
  EXPECT_FALSE(client_->Land(peer, wrong).accept);
  Peer* other = peer == servers_[0] ? servers_[1] : servers_[0];
  EXPECT_FALSE(client_->Land(other, good).accept);
  // What is late, or of nothing known here, is read and forgotten.
  wrong = good;
  wrong.key.partition = 7;
  EXPECT_EQ(client_->Land(peer, wrong).data, nullptr);
  wrong = good;
  wrong.round = 3;
  EXPECT_EQ(client_->Land(peer, wrong).data, nullptr);
  wrong = good;
  wrong.key.tensor = 3;
  EXPECT_EQ(client_->Land(peer, wrong).data, nullptr);
  Answer();
  EXPECT_TRUE(call.outcome->ok());
}

TEST_F(WorkerClientTest, AnAllgatherBelievesNoRowsThatCannotBe) {
  config_.self = {Role::kWorker, 1};
  client_ = std::make_unique<WorkerClient>(config_);
  Start();
  uint64_t round = 0;
  for (const std::vector<int64_t>& rows :
       {std::vector<int64_t>{-5, 3}, std::vector<int64_t>{1, 2},
        std::vector<int64_t>{int64_t{1} << 62, 3}}) {
    const std::vector<float> input(3);
    std::optional<Status> outcome;
    AllgatherRequest request;
    request.name = "g";
    request.shape = {3};
    request.input = input.data();
    request.allocate = [](const std::vector<int64_t>&) -> Result<void*> {
      ADD_FAILURE() << "memory for rows that cannot be";
      return Internal("no");
    };
    transport_.messages.clear();
    client_->Allgather(request, [&](Status s) { outcome = s; });
    transport_.Complete(OkStatus());
    Peer* peer = transport_.messages.back().peer;
    Header header = transport_.messages.back().header;
    EXPECT_EQ(header.round, round++);
    header.kind = Kind::kResult;
    const Landing landing = client_->Land(peer, header);
    ASSERT_NE(landing.data, nullptr);
    std::memcpy(landing.data, rows.data(), header.payload_bytes);
    client_->Arrived(peer, header, landing);
    ASSERT_TRUE(outcome.has_value());
    EXPECT_EQ(outcome->code(), Code::kInternal);
  }
}

TEST_F(WorkerClientTest, SenselessRequestsAreSentences) {
  Start();
  std::optional<Status> outcome;
  PushPullRequest request;
  request.name = "t";
  request.dtype = DType::kInt32;
  request.operation = Operation::kAverage;
  client_->PushPull(request, [&](Status s) { outcome = s; });
  EXPECT_EQ(outcome->code(), Code::kInvalidArgument);
  EXPECT_NE(outcome->message().find("use Sum"), std::string::npos);
  request.operation = Operation::kBroadcast;
  request.root_rank = 2;
  client_->PushPull(request, [&](Status s) { outcome = s; });
  EXPECT_NE(outcome->message().find("in [0, 2). Received: 2"),
            std::string::npos);
  request.root_rank = 0;
  request.shape = {int64_t{1} << 62, 4};
  client_->PushPull(request, [&](Status s) { outcome = s; });
  EXPECT_EQ(outcome->code(), Code::kInvalidArgument);
}

TEST_F(WorkerClientTest, AJoinEndsWhenEveryServerSaysSo) {
  Start();
  Call before(4), after(4), new_name(4);
  before.Run(client_.get());
  Answer();
  JoinCall join;
  join.Run(client_.get());
  ASSERT_EQ(transport_.messages.size(), 2u);
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(transport_.messages[i].peer, servers_[i]);
    EXPECT_EQ(transport_.messages[i].header.kind, Kind::kJoin);
    EXPECT_EQ(transport_.messages[i].header.round, 1u);  // push-pulls
    EXPECT_EQ(transport_.messages[i].header.membership_epoch, 1u);
  }
  EXPECT_TRUE(Tell(servers_[1], Kind::kJoined, 0));
  EXPECT_TRUE(Tell(servers_[1], Kind::kJoined, 0));  // twice is once
  EXPECT_FALSE(join.outcome.has_value());
  EXPECT_TRUE(Tell(servers_[0], Kind::kJoined, 1));
  ASSERT_TRUE(join.outcome.has_value());
  ASSERT_TRUE(join.outcome->ok());
  EXPECT_EQ(join.outcome->value(), 1u);  // what server 0 says
  // Others were at another round by then: all count anew.
  uint64_t round = uint64_t{1} << 40;
  Answer();
  for (Call* call : {&before, &after}) {
    *call = Call(4);
    call->Run(client_.get());
    ASSERT_EQ(transport_.Count(Kind::kPush), 1u);
    EXPECT_EQ(transport_.messages.back().header.round, round++);
    Answer();
    EXPECT_TRUE(call->outcome->ok());
  }
  new_name.Run(client_.get(), "new");
  EXPECT_EQ(transport_.messages.back().header.round, uint64_t{1} << 40);
}

TEST_F(WorkerClientTest, WhoHasJoinedCanDoNothing) {
  Start();
  JoinCall join, again;
  join.Run(client_.get());
  Call call(4);
  call.Run(client_.get());
  again.Run(client_.get());
  std::optional<Status> gathered;
  AllgatherRequest request;
  request.name = "g";
  request.shape = {0};
  client_->Allgather(request, [&](Status s) { gathered = s; });
  ASSERT_TRUE(call.outcome.has_value());
  ASSERT_TRUE(again.outcome.has_value());
  ASSERT_TRUE(gathered.has_value());
  for (const Status& status :
       {*call.outcome, again.outcome->status(), *gathered}) {
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_NE(status.message().find("has joined"), std::string::npos);
  }
  EXPECT_FALSE(join.outcome.has_value());
  for (Peer* server : servers_) Tell(server, Kind::kJoined);
  EXPECT_TRUE(join.outcome->ok());
  call = Call(4);
  call.Run(client_.get());
  Answer();
  EXPECT_TRUE(call.outcome->ok());
}

TEST_F(WorkerClientTest, AJoinWaitsForWhatIsUnderWay) {
  Start();
  Call first(8), second(8);
  JoinCall join;
  first.Run(client_.get());
  second.Run(client_.get());
  join.Run(client_.get());
  EXPECT_EQ(transport_.Count(Kind::kJoin), 0u);
  Answer();
  EXPECT_EQ(transport_.Count(Kind::kJoin), 0u);
  EXPECT_EQ(transport_.Count(Kind::kPush), 2u);
  Answer();
  EXPECT_TRUE(second.outcome->ok());
  EXPECT_EQ(transport_.Count(Kind::kJoin), 2u);
}

TEST_F(WorkerClientTest, AJoinWaitsForBothPartsOfAnAllgather) {
  Start();
  const std::vector<float> input(1, 5);
  std::vector<float> output(1);
  std::optional<Status> gathered;
  AllgatherRequest request;
  request.name = "g";
  request.shape = {1};
  request.input = input.data();
  request.allocate = [&](const std::vector<int64_t>&) -> Result<void*> {
    return static_cast<void*>(output.data());
  };
  client_->Allgather(request, [&](Status s) { gathered = s; });
  JoinCall join;
  join.Run(client_.get());
  // The other worker has joined: it has no rows, and this one's come back.
  for (const std::vector<int64_t>& answer :
       {std::vector<int64_t>{1, 0}, std::vector<int64_t>{}}) {
    EXPECT_FALSE(gathered.has_value());
    EXPECT_EQ(transport_.Count(Kind::kJoin), 0u);
    ASSERT_EQ(transport_.Count(Kind::kPush), 1u);
    const SentMessage push = std::move(transport_.messages.back());
    transport_.Complete(OkStatus());
    transport_.messages.clear();
    push.sent(OkStatus());
    Header header = push.header;
    header.kind = Kind::kResult;
    header.payload_bytes = answer.size() * sizeof(int64_t);
    const Landing landing = client_->Land(push.peer, header);
    ASSERT_TRUE(landing.accept);
    if (!answer.empty()) {
      std::memcpy(landing.data, answer.data(), header.payload_bytes);
    }
    client_->Arrived(push.peer, header, landing);
  }
  ASSERT_TRUE(gathered.has_value());
  EXPECT_TRUE(gathered->ok());
  EXPECT_EQ(output, input);
  EXPECT_EQ(transport_.Count(Kind::kJoin), 2u);
}

TEST_F(WorkerClientTest, ALossEndsAJoin) {
  Start();
  JoinCall join, later;
  join.Run(client_.get());
  client_->Fail(Unavailable("worker 1 is gone"));
  ASSERT_TRUE(join.outcome.has_value());
  EXPECT_EQ(join.outcome->status().message(), "worker 1 is gone");
  for (Peer* server : servers_) Tell(server, Kind::kJoined);  // too late
  later.Run(client_.get());
  EXPECT_EQ(later.outcome->status().message(), "worker 1 is gone");
}

TEST_F(WorkerClientTest, ALossEndsAJoinThatHasNotBegun) {
  Start();
  Call call(4);
  JoinCall join;
  call.Run(client_.get());
  join.Run(client_.get());
  client_->Fail(Unavailable("worker 1 is gone"));
  transport_.Complete(OkStatus());
  EXPECT_EQ(call.outcome->message(), "worker 1 is gone");
  EXPECT_EQ(join.outcome->status().message(), "worker 1 is gone");
  EXPECT_EQ(transport_.Count(Kind::kJoin), 0u);
}

TEST_F(WorkerClientTest, AJoinNeedsTheServersThatHaveNotAnswered) {
  Start();
  JoinCall join, later;
  join.Run(client_.get());
  Tell(servers_[1], Kind::kJoined);
  client_->ServerLeft(1, Unavailable("server 1 left the job"));
  EXPECT_FALSE(join.outcome.has_value());
  client_->ServerLeft(0, Unavailable("server 0 left the job"));
  ASSERT_TRUE(join.outcome.has_value());
  EXPECT_EQ(join.outcome->status().message(), "server 0 left the job");
}

TEST_F(WorkerClientTest, AJoinWithoutAServerFailsAtOnce) {
  JoinCall early, late;
  early.Run(client_.get());
  EXPECT_EQ(early.outcome->status().code(), Code::kFailedPrecondition);
  Start();
  client_->ServerLeft(1, Unavailable("server 1 left the job"));
  late.Run(client_.get());
  EXPECT_EQ(late.outcome->status().message(), "server 1 left the job");
}

TEST_F(WorkerClientTest, AJoinErrorIsTheEnd) {
  Start();
  JoinCall join;
  Call call(4);
  join.Run(client_.get());
  const Status why = Unavailable("worker 1 left the job");
  Tell(servers_[0], Kind::kJoinError, 0, EncodeError(why));
  ASSERT_TRUE(join.outcome.has_value());
  EXPECT_EQ(join.outcome->status().code(), Code::kUnavailable);
  EXPECT_EQ(join.outcome->status().message(), why.message());
  call.Run(client_.get());
  EXPECT_EQ(call.outcome->message(), why.message());
}

TEST_F(WorkerClientTest, ALastRankThatCannotBeIsRefused) {
  Start();
  JoinCall join;
  Tell(servers_[0], Kind::kJoined);  // unasked
  join.Run(client_.get());
  EXPECT_FALSE(Tell(servers_[0], Kind::kJoined, 2));
  EXPECT_TRUE(Tell(servers_[1], Kind::kJoined));
  EXPECT_FALSE(join.outcome.has_value());
}

// All of server 1's partitions but first ones, in commits of these tests.
RebalanceBody AllToServer0(uint64_t version, std::vector<TensorRound> rounds) {
  return {version, {kWholeModel, 0}, std::move(rounds)};
}

TEST_F(WorkerClientTest, BetweenHoldAndCommitNothingBegins) {
  Start();
  Call before(40), same_name(40), another(40), later(40);
  before.Run(client_.get(), "t");
  EXPECT_EQ(client_->Hold(3).rounds,
            (std::vector<TensorRound>{{TensorId("t"), 1}}));
  same_name.Run(client_.get(), "t");
  another.Run(client_.get(), "u");
  Answer();
  EXPECT_TRUE(before.outcome.has_value());
  EXPECT_TRUE(transport_.messages.empty());
  client_->Commit(AllToServer0(2, {}));  // another one's
  EXPECT_TRUE(transport_.messages.empty());
  client_->Commit(AllToServer0(3, {{TensorId("t"), 1}}));
  EXPECT_EQ(transport_.Count(Kind::kPush), 20u);
  Answer();
  later.Run(client_.get(), "u");
  Answer();
  for (const Call* call : {&before, &same_name, &another, &later}) {
    ASSERT_TRUE(call->outcome.has_value());
    EXPECT_TRUE(call->outcome->ok());
    EXPECT_EQ(call->data, call->doubled);
  }
  EXPECT_EQ(client_->counters().rebalances, 1u);
  client_->Commit(AllToServer0(3, {}));
  EXPECT_EQ(client_->counters().rebalances, 1u);
}

TEST_F(WorkerClientTest, RoundsBeforeTheCommittedOneKeepTheirServers) {
  Start();
  client_->Hold(1);
  // Another worker has begun round 0 already.
  client_->Commit(AllToServer0(1, {{TensorId("t"), 1}}));
  const auto pushes_to_server_1 = [this] {
    size_t count = 0;
    for (const SentMessage& message : transport_.messages) {
      if (message.header.kind != Kind::kPush) continue;
      count += message.peer == servers_[1] && message.header.key.partition > 0;
    }
    return count;
  };
  Call first(400), second(400);
  first.Run(client_.get(), "t");
  EXPECT_NEAR(static_cast<double>(pushes_to_server_1()), 50, 1);
  Answer();
  second.Run(client_.get(), "t");
  EXPECT_EQ(pushes_to_server_1(), 0u);
  Answer();
  EXPECT_EQ(second.data, second.doubled);
}

TEST_F(WorkerClientTest, NextRoundsAreThoseOfThisGeneration) {
  Start();
  Call call(4);
  call.Run(client_.get(), "t");
  Answer();
  JoinCall join;
  join.Run(client_.get());
  // Who has joined answers too.
  EXPECT_EQ(client_->Hold(1).rounds,
            (std::vector<TensorRound>{{TensorId("t"), 1}}));
  Tell(servers_[0], Kind::kJoined);
  Tell(servers_[1], Kind::kJoined);
  ASSERT_TRUE(join.outcome.has_value());
  client_->Commit(AllToServer0(1, {{TensorId("t"), 1}}));
  EXPECT_EQ(client_->Hold(2).rounds,
            (std::vector<TensorRound>{{TensorId("t"), uint64_t{1} << 40}}));
}

TEST_F(WorkerClientTest, AJoinWaitsForWhatIsHeld) {
  Start();
  client_->Hold(1);
  Call call(4);
  call.Run(client_.get());
  JoinCall join;
  join.Run(client_.get());
  EXPECT_EQ(transport_.Count(Kind::kJoin), 0u);
  client_->Commit(AllToServer0(1, {}));
  EXPECT_EQ(transport_.Count(Kind::kJoin), 0u);
  Answer();
  EXPECT_EQ(transport_.Count(Kind::kJoin), 2u);
}

TEST_F(WorkerClientTest, ALossEndsWhatIsHeld) {
  Start();
  client_->Hold(1);
  Call call(4);
  call.Run(client_.get());
  client_->Fail(Unavailable("worker 1 died"));
  ASSERT_TRUE(call.outcome.has_value());
  EXPECT_EQ(call.outcome->message(), "worker 1 died");
  client_->Commit(AllToServer0(1, {}));
  EXPECT_TRUE(transport_.messages.empty());
}

TEST_F(WorkerClientTest, ACoordinatorThatLeavesEndsWhatIsHeld) {
  Start();
  Call under_way(40), held(4), later(4);
  under_way.Run(client_.get(), "t");
  Answer();
  client_->Hold(1);
  held.Run(client_.get(), "u");
  client_->ServerLeft(0, Unavailable("server 0 left the job"));
  ASSERT_TRUE(held.outcome.has_value());
  EXPECT_EQ(held.outcome->message(), "server 0 left the job");
  later.Run(client_.get(), "v");
  ASSERT_TRUE(later.outcome.has_value());
  EXPECT_EQ(later.outcome->message(), "server 0 left the job");
  // It may have asked before it left.
  EXPECT_TRUE(client_->Hold(2).rounds.empty());
  EXPECT_TRUE(under_way.outcome.has_value());
}

class LittleCredit : public WorkerClientTest {
 protected:
  LittleCredit() : WorkerClientTest(16) {}
};

TEST_F(LittleCredit, AnUrgentTensorOvertakes) {
  Start();
  Call large(80), urgent(4);
  large.Run(client_.get(), "large", -5);
  const size_t before = transport_.Count(Kind::kPush);
  EXPECT_LE(before, 2u);  // one partition for each server
  urgent.Run(client_.get(), "urgent", 5);
  while (!urgent.outcome.has_value() && !large.outcome.has_value()) Answer();
  EXPECT_TRUE(urgent.outcome.has_value());
  EXPECT_FALSE(large.outcome.has_value());
  while (!large.outcome.has_value()) Answer();
  EXPECT_EQ(large.data, large.doubled);
}

TEST_F(LittleCredit, AllWorkersRowsOfAnAllgatherAreUnderWayTogether) {
  config_.servers = {"s:1"};
  servers_.resize(1);
  client_ = std::make_unique<WorkerClient>(config_);
  Start();
  const std::vector<float> input(40);
  std::vector<float> output(80);
  std::optional<Status> gathered;
  AllgatherRequest request;
  request.name = "g";
  request.shape = {40};  // ten partitions of each worker's rows
  request.input = input.data();
  request.allocate = [&](const std::vector<int64_t>&) -> Result<void*> {
    return static_cast<void*>(output.data());
  };
  client_->Allgather(request, [&](Status s) { gathered = s; });
  Header header = transport_.messages.back().header;
  transport_.Complete(OkStatus());
  transport_.messages.clear();
  header.kind = Kind::kResult;
  const Landing landing = client_->Land(servers_[0], header);
  ASSERT_TRUE(landing.accept);
  const int64_t rows[] = {40, 40};
  std::memcpy(landing.data, rows, sizeof(rows));
  client_->Arrived(servers_[0], header, landing);

  std::vector<uint64_t> pushed;  // whose rows
  while (!transport_.messages.empty()) {
    std::vector<SentMessage> messages = std::move(transport_.messages);
    transport_.messages.clear();
    for (SentMessage& message : messages) {
      if (message.header.kind == Kind::kPush) {
        pushed.push_back(message.header.key.tensor);
      }
      if (message.sent) message.sent(OkStatus());
    }
  }
  ASSERT_EQ(pushed.size(), 20u);
  // The first partition went before the second broadcast began.
  for (size_t i = 1; i + 1 < pushed.size(); i += 2) {
    EXPECT_NE(pushed[i], pushed[i + 1]) << i;
  }
  client_->Fail(Unavailable("enough"));
  EXPECT_TRUE(gathered.has_value());
}

}  // namespace
}  // namespace byteps

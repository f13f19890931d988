#include "csrc/runtime/runtime.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/runtime/current_runtime.h"
#include "csrc/worker/shares.h"

namespace byteps {
namespace {

constexpr int kDeadlineMs = 20000;

std::vector<std::string> FreeAddresses(size_t count) {
  std::vector<int> sockets;
  std::vector<std::string> addresses;
  for (size_t i = 0; i < count; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
    getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
    addresses.push_back("127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
    sockets.push_back(fd);
  }
  for (int fd : sockets) close(fd);
  return addresses;
}

struct Processes {
  size_t workers = 0;
  size_t servers = 0;
  bool mixed = false;
};

// A whole job in this process: its runtimes talk over TCP as always.
class Job {
 public:
  explicit Job(const Processes& of) {
    const std::vector<std::string> all = FreeAddresses(of.workers + of.servers);
    base_.workers.assign(all.begin(), all.begin() + of.workers);
    base_.servers.assign(all.begin() + of.workers, all.end());
    base_.mixed = of.mixed;
    base_.job_token = "token";
    base_.cluster_digest = "digest";
    base_.partition_bytes = 64;
    base_.credit_bytes = 200;
    base_.failure_timeout_ms = 5000;
    base_.start_timeout_ms = 15000;
    base_.reduce_threads = 2;
  }

  Config ConfigOf(Role role, uint32_t index) const {
    Config config = base_;
    config.self = {role, index};
    return config;
  }

  // Starts everybody at once.
  void Start() {
    std::vector<std::future<Result<std::shared_ptr<Runtime>>>> starting;
    for (uint32_t i = 0; i < base_.servers.size(); ++i) {
      starting.push_back(Launch(ConfigOf(Role::kServer, i)));
    }
    for (uint32_t i = 0; i < base_.workers.size(); ++i) {
      starting.push_back(Launch(ConfigOf(Role::kWorker, i)));
    }
    for (size_t i = 0; i < starting.size(); ++i) {
      Result<std::shared_ptr<Runtime>> runtime = starting[i].get();
      ASSERT_TRUE(runtime.ok()) << runtime.status().message();
      (i < base_.servers.size() ? servers : workers).push_back(runtime.value());
    }
  }

  static std::future<Result<std::shared_ptr<Runtime>>> Launch(Config config) {
    return std::async(std::launch::async,
                      [config] { return Runtime::Start(config); });
  }

  std::vector<std::shared_ptr<Runtime>> workers;
  std::vector<std::shared_ptr<Runtime>> servers;
  Config base_;
};

// One worker's part of a push-pull, and its outcome.
struct Call {
  Call(size_t count, uint32_t rank) : input(count), data(count) {
    for (size_t i = 0; i < count; ++i) {
      input[i] = static_cast<float>(i % 97 + rank * 1000);
    }
  }
  void Run(Runtime* runtime, const std::string& name,
           Operation operation = Operation::kSum) {
    PushPullRequest request;
    request.name = name;
    request.operation = operation;
    request.shape = {static_cast<int64_t>(data.size())};
    // Apart, though they may be the same: that a result comes only after its
    // push has been read, by way of another process, ThreadSanitizer cannot
    // see.
    request.input = input.data();
    request.output = data.data();
    runtime->PushPull(std::move(request),
                      [this](Status status) { done.set_value(status); });
  }
  Status Wait() {
    std::future<Status> future = done.get_future();
    if (future.wait_for(std::chrono::milliseconds(kDeadlineMs)) !=
        std::future_status::ready) {
      ADD_FAILURE() << "a push-pull did not end";
      return Internal("late");
    }
    return future.get();
  }
  std::vector<float> input;
  std::vector<float> data;
  std::promise<Status> done;
};

// A worker's join, and its outcome.
struct JoinCall {
  void Run(Runtime* runtime) {
    runtime->Join([this](Result<uint32_t> last_rank) {
      done.set_value(std::move(last_rank));
    });
  }
  Result<uint32_t> Wait() {
    std::future<Result<uint32_t>> future = done.get_future();
    if (future.wait_for(std::chrono::milliseconds(kDeadlineMs)) !=
        std::future_status::ready) {
      ADD_FAILURE() << "a join did not end";
      return Internal("late");
    }
    return future.get();
  }
  std::promise<Result<uint32_t>> done;
};

class RuntimeTest : public testing::TestWithParam<Processes> {
 protected:
  void SetUp() override { ConfigureLog(LogLevel::kError, "test"); }
  void TearDown() override { ConfigureLog(LogLevel::kWarning, "test"); }
};

TEST_P(RuntimeTest, SumsAreExactForEverySize) {
  Job job(GetParam());
  ASSERT_NO_FATAL_FAILURE(job.Start());
  const size_t n = job.workers.size();
  for (size_t count : {0u, 1u, 7u, 16u, 17u, 5000u}) {
    std::vector<std::unique_ptr<Call>> calls;
    for (uint32_t rank = 0; rank < n; ++rank) {
      calls.push_back(std::make_unique<Call>(count, rank));
      calls[rank]->Run(job.workers[rank].get(), "t");
    }
    for (auto& call : calls) {
      ASSERT_TRUE(call->Wait().ok());
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(call->data[i], (i % 97) * n + 1000 * n * (n - 1) / 2);
      }
    }
  }
}

TEST_P(RuntimeTest, EveryProcessRecordsItsPartIntoOneFolder) {
  Job job(GetParam());
  char folder[] = "/tmp/byteps-runtime-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  job.base_.timeline = folder;
  ASSERT_NO_FATAL_FAILURE(job.Start());
  std::vector<std::unique_ptr<Call>> calls;
  for (uint32_t rank = 0; rank < job.workers.size(); ++rank) {
    job.workers[rank]->Label("t", "label");
    calls.push_back(std::make_unique<Call>(40, rank));  // three partitions
  }
  for (uint32_t rank = 0; rank < job.workers.size(); ++rank) {
    calls[rank]->Run(job.workers[rank].get(), "t");
  }
  for (auto& call : calls) ASSERT_TRUE(call->Wait().ok());
  EXPECT_EQ(job.workers[0]->StartTimeline(folder).code(),
            Code::kFailedPrecondition);
  for (auto& worker : job.workers) worker->Close();
  for (auto& server : job.servers) server->Close();

  std::map<std::string, std::string> files;  // by name, of one job
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_directory()) continue;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    EXPECT_TRUE(
        files.emplace(entry.path().filename().string(), text.str()).second);
  }
  std::filesystem::remove_all(folder);
  const auto count = [&files](const std::string& cat) {
    size_t found = 0;
    const std::string part = "\"cat\":\"" + cat + "\",\"name\":";
    for (const auto& file : files) {
      for (size_t at = 0;
           (at = file.second.find(part, at)) != std::string::npos; ++at) {
        ++found;
      }
    }
    return found;
  };
  const size_t n = job.workers.size();
  EXPECT_EQ(files.size(), n + job.servers.size());
  EXPECT_NE(
      files["worker-0.json"].find("\"cat\":\"tensor\",\"name\":\"label\""),
      std::string::npos);
  EXPECT_EQ(count("tensor"), n);
  for (const char* cat :
       {"queue", "push", "pull", "receive", "sum queue", "sum", "reply"}) {
    EXPECT_EQ(count(cat), 3 * n) << cat;
  }
}

TEST_P(RuntimeTest, CallsOnOneNameGoOneAfterTheOtherAndOthersTogether) {
  Job job(GetParam());
  ASSERT_NO_FATAL_FAILURE(job.Start());
  const size_t n = job.workers.size();
  std::vector<std::vector<std::unique_ptr<Call>>> calls(n);
  for (uint32_t rank = 0; rank < n; ++rank) {
    for (size_t k = 0; k < 20; ++k) {
      calls[rank].push_back(std::make_unique<Call>(100 + k, rank));
      // Even ones share a name, and change its shape each time.
      calls[rank][k]->Run(job.workers[rank].get(),
                          k % 2 == 0 ? "same" : "t" + std::to_string(k));
    }
  }
  for (auto& of_worker : calls) {
    for (auto& call : of_worker) {
      ASSERT_TRUE(call->Wait().ok());
      ASSERT_EQ(call->data[50], 50 * n + 1000 * n * (n - 1) / 2);
    }
  }
}

TEST_P(RuntimeTest, ADisagreementEndsOnAllAndTheNextCallWorks) {
  Job job(GetParam());
  ASSERT_NO_FATAL_FAILURE(job.Start());
  const size_t n = job.workers.size();
  std::vector<std::unique_ptr<Call>> calls;
  for (uint32_t rank = 0; rank < n; ++rank) {
    calls.push_back(std::make_unique<Call>(rank == 0 ? 1000 : 1001, rank));
    calls[rank]->Run(job.workers[rank].get(), "t");
  }
  for (auto& call : calls) {
    const Status status = call->Wait();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find("[1000]"), std::string::npos);
    EXPECT_NE(status.message().find("[1001]"), std::string::npos);
  }
  for (uint32_t rank = 0; rank < n; ++rank) {
    calls[rank] = std::make_unique<Call>(1000, rank);
    calls[rank]->Run(job.workers[rank].get(), "t");
  }
  for (auto& call : calls) EXPECT_TRUE(call->Wait().ok());
}

TEST_P(RuntimeTest, WhoLeavesIsNamedAndCloseEndsOwnCalls) {
  Job job(GetParam());
  ASSERT_NO_FATAL_FAILURE(job.Start());
  Call waiting(10, 0), own(10, 1);
  waiting.Run(job.workers[0].get(), "t");
  own.Run(job.workers[1].get(), "another");
  const int64_t begin = NowMs();
  job.workers[1]->Close();
  EXPECT_EQ(own.Wait().code(), Code::kCancelled);
  const Status status = waiting.Wait();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("worker 1 (" + job.base_.workers[1] + ")"),
            std::string::npos)
      << status.message();
  EXPECT_LT(NowMs() - begin, 4000);
  job.workers[1]->Close();  // once more does nothing
}

TEST_P(RuntimeTest, ServersEndWhenAllWorkersHaveLeft) {
  Job job(GetParam());
  ASSERT_NO_FATAL_FAILURE(job.Start());
  for (auto& worker : job.workers) worker->Close();
  for (auto& server : job.servers) {
    Result<bool> finished = server->WaitUntilFinished(kDeadlineMs);
    ASSERT_TRUE(finished.ok());
    EXPECT_TRUE(finished.value());
    EXPECT_TRUE(server->failure().ok());
  }
}

TEST_P(RuntimeTest, GathersRowsOfAllWorkers) {
  Job job(GetParam());
  ASSERT_NO_FATAL_FAILURE(job.Start());
  const size_t n = job.workers.size();
  std::vector<std::vector<float>> inputs(n), outputs(n);
  std::vector<std::promise<Status>> done(n);
  for (uint32_t rank = 0; rank < n; ++rank) {
    inputs[rank].assign(rank * 50, static_cast<float>(rank));  // worker 0: none
    AllgatherRequest request;
    request.name = "g";
    request.shape = {static_cast<int64_t>(inputs[rank].size())};
    request.input = inputs[rank].data();
    request.allocate =
        [&outputs, rank](const std::vector<int64_t>& rows) -> Result<void*> {
      int64_t total = 0;
      for (int64_t r : rows) total += r;
      outputs[rank].resize(total);
      return static_cast<void*>(outputs[rank].data());
    };
    job.workers[rank]->Allgather(std::move(request), [&done, rank](Status s) {
      done[rank].set_value(s);
    });
  }
  std::vector<float> expected;
  for (uint32_t rank = 0; rank < n; ++rank) {
    expected.insert(expected.end(), inputs[rank].begin(), inputs[rank].end());
  }
  for (uint32_t rank = 0; rank < n; ++rank) {
    ASSERT_TRUE(done[rank].get_future().get().ok());
    EXPECT_EQ(outputs[rank], expected);
  }
}

// The sum of what those of n workers pushed that took part.
void ExpectSum(const Call& call, size_t n,
               const std::function<bool(uint32_t rank)>& took_part) {
  size_t pushed = 0, ranks = 0;
  for (uint32_t rank = 0; rank < n; ++rank) {
    if (!took_part(rank)) continue;
    ++pushed;
    ranks += rank;
  }
  for (size_t i = 0; i < call.data.size(); ++i) {
    ASSERT_EQ(call.data[i], (i % 97) * pushed + 1000 * ranks);
  }
}

TEST_P(RuntimeTest, WorkersWithDifferentNumbersOfStepsMeetInAJoin) {
  Job job(GetParam());
  ASSERT_NO_FATAL_FAILURE(job.Start());
  const size_t n = job.workers.size();
  constexpr size_t kCount = 100;
  for (uint32_t epoch = 0; epoch < 3; ++epoch) {
    // Worker r takes part in r + 1 steps of n, or the other way round.
    const auto steps = [&](uint32_t r) { return epoch % 2 ? n - r : r + 1; };
    std::vector<std::thread> threads;
    std::vector<uint32_t> last(n, 99);
    for (uint32_t rank = 0; rank < n; ++rank) {
      threads.emplace_back([&, rank] {
        for (size_t step = 0; step < steps(rank); ++step) {
          Call call(kCount, rank);
          call.Run(job.workers[rank].get(), "t");
          ASSERT_TRUE(call.Wait().ok());
          ASSERT_NO_FATAL_FAILURE(
              ExpectSum(call, n, [&](uint32_t r) { return step < steps(r); }));
        }
        JoinCall join;
        join.Run(job.workers[rank].get());
        Result<uint32_t> outcome = join.Wait();
        ASSERT_TRUE(outcome.ok()) << outcome.status().message();
        last[rank] = outcome.value();
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(last, std::vector<uint32_t>(n, epoch % 2 ? 0 : n - 1));
  }
}

TEST_P(RuntimeTest, AJoinEndsWhenAWorkerLeaves) {
  Job job(GetParam());
  ASSERT_NO_FATAL_FAILURE(job.Start());
  JoinCall join;
  join.Run(job.workers[0].get());
  job.workers[1]->Close();
  Result<uint32_t> outcome = join.Wait();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.status().code(), Code::kUnavailable);
  EXPECT_NE(outcome.status().message().find("worker 1"), std::string::npos)
      << outcome.status().message();
}

TEST_P(RuntimeTest, WhoLeavesRightAfterAJoinIsNotMissedByIt) {
  Job job(GetParam());
  ASSERT_NO_FATAL_FAILURE(job.Start());
  std::vector<std::thread> threads;
  for (auto& worker : job.workers) {
    threads.emplace_back([&worker] {
      JoinCall join;
      join.Run(worker.get());
      Result<uint32_t> outcome = join.Wait();
      EXPECT_TRUE(outcome.ok()) << outcome.status().message();
      worker->Close();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(RuntimeTest, CloseEndsOwnJoin) {
  Job job(GetParam());
  ASSERT_NO_FATAL_FAILURE(job.Start());
  JoinCall join;
  join.Run(job.workers[0].get());
  job.workers[0]->Close();
  EXPECT_EQ(join.Wait().status().code(), Code::kCancelled);
  if (job.servers.empty()) return;
  JoinCall of_server;
  of_server.Run(job.servers[0].get());
  EXPECT_EQ(of_server.Wait().status().code(), Code::kFailedPrecondition);
}

// Shares with nothing, or a little, for server `starved`.
std::vector<uint64_t> SharesWithout(uint32_t starved, uint32_t servers) {
  std::vector<uint64_t> shares(servers, kWholeModel / servers);
  if (servers < 2) return {kWholeModel};
  shares[(starved + 1) % servers] += shares[starved];
  shares[starved] = 0;
  shares[0] += kWholeModel - kWholeModel / servers * servers;
  return shares;
}

TEST_P(RuntimeTest, SumsStayExactWhileSharesChange) {
  Job job(GetParam());
  ASSERT_NO_FATAL_FAILURE(job.Start());
  const size_t n = job.workers.size();
  const uint32_t servers = job.workers[0]->config().num_servers();
  constexpr size_t kTensors = 6, kSteps = 40;
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      Runtime* runtime = job.workers[rank].get();
      std::vector<std::vector<std::unique_ptr<Call>>> steps(kSteps);
      const size_t ahead = rank % 2 == 0 ? 0 : 4;
      const auto wait = [&](size_t step) {
        for (auto& call : steps[step]) {
          ASSERT_TRUE(call->Wait().ok());
          for (size_t i = 0; i < call->data.size(); ++i) {
            ASSERT_EQ(call->data[i], (i % 97) * n + 1000 * n * (n - 1) / 2);
          }
        }
      };
      for (size_t step = 0; step < kSteps; ++step) {
        for (size_t t = 0; t < kTensors; ++t) {
          // A tensor changes its shape, and one is new in each step.
          steps[step].push_back(
              std::make_unique<Call>(200 * t + 50 + step % 3, rank));
          steps[step].back()->Run(
              runtime, "t" + std::to_string(t == 5 ? 100 + step : t));
        }
        // All propose at once, and some are heeded.
        if (step % 3 == rank) {
          runtime->Propose(
              SharesWithout(static_cast<uint32_t>(step) % servers, servers));
        }
        // Some wait for each step, others are ahead with their calls.
        if (step >= ahead) wait(step - ahead);
      }
      for (size_t step = kSteps - ahead; step < kSteps; ++step) wait(step);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& worker : job.workers) {
    EXPECT_GE(worker->client()->counters().rebalances, 1u);
  }
}

TEST_P(RuntimeTest, SharesMayChangeBeforeDuringAndAfterAJoin) {
  Job job(GetParam());
  ASSERT_NO_FATAL_FAILURE(job.Start());
  const size_t n = job.workers.size();
  const uint32_t servers = job.workers[0]->config().num_servers();
  constexpr size_t kCount = 2000;
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      for (uint32_t epoch = 0; epoch < 6; ++epoch) {
        // Worker r takes part in 3r + 1 steps, or the other way round.
        const auto steps = [&](size_t r) {
          return 3 * (epoch % 2 ? n - 1 - r : r) + 1;
        };
        for (size_t step = 0; step < steps(rank); ++step) {
          Call call(kCount, rank);
          call.Run(job.workers[rank].get(), "t");
          if (step % 2 == 0) {
            job.workers[rank]->Propose(
                SharesWithout((epoch + rank) % servers, servers));
          }
          ASSERT_TRUE(call.Wait().ok());
          ASSERT_NO_FATAL_FAILURE(
              ExpectSum(call, n, [&](uint32_t r) { return step < steps(r); }));
        }
        JoinCall join;
        join.Run(job.workers[rank].get());
        job.workers[rank]->Propose(SharesWithout(epoch % servers, servers));
        Result<uint32_t> outcome = join.Wait();
        ASSERT_TRUE(outcome.ok()) << outcome.status().message();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(RuntimeTest, WhoLeavesDuringARebalanceIsNamedAsEver) {
  Job job(GetParam());
  ASSERT_NO_FATAL_FAILURE(job.Start());
  const uint32_t servers = job.workers[0]->config().num_servers();
  const size_t last = job.workers.size() - 1;
  job.workers[0]->Propose(SharesWithout(0, servers));
  std::thread leaves([&] { job.workers[last]->Close(); });
  Call call(1000, 0);
  call.Run(job.workers[0].get(), "t");
  EXPECT_EQ(call.Wait().code(), Code::kUnavailable);
  leaves.join();
}

TEST(Runtime, AServerWithoutAShareSumsFirstPartitionsOnly) {
  Job job({2, 2});
  ASSERT_NO_FATAL_FAILURE(job.Start());
  const auto step = [&job] {
    std::vector<std::unique_ptr<Call>> calls;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      calls.push_back(std::make_unique<Call>(16 * 100, rank));
      calls[rank]->Run(job.workers[rank].get(), "t");
    }
    for (auto& call : calls) {
      ASSERT_TRUE(call->Wait().ok());
      for (size_t i = 0; i < call->data.size(); ++i) {
        ASSERT_EQ(call->data[i], (i % 97) * 2 + 1000);
      }
    }
  };
  const auto summed = [&job](size_t server) {
    return job.servers[server]->server()->counters().bytes_summed;
  };
  ASSERT_NO_FATAL_FAILURE(step());
  EXPECT_EQ(summed(0), 2 * 50 * 64u);
  EXPECT_EQ(summed(1), 2 * 50 * 64u);
  job.workers[1]->Propose({0, kWholeModel + 1});  // no shares
  job.workers[1]->Propose({kWholeModel});
  for (const auto& [shares, lower, upper] :
       std::vector<std::tuple<std::vector<uint64_t>, size_t, size_t>>{
           {{0, kWholeModel}, 0, 1}, {{kWholeModel, 0}, 1, 0}}) {
    const uint64_t before = job.workers[0]->client()->counters().rebalances;
    job.workers[1]->Propose(shares);
    // Once it holds on one it holds on all, for what is begun now.
    const int64_t deadline_ms = NowMs() + kDeadlineMs;
    for (auto& worker : job.workers) {
      while (worker->client()->counters().rebalances == before) {
        ASSERT_LT(NowMs(), deadline_ms);
        std::this_thread::yield();
      }
    }
    const uint64_t low = summed(lower), up = summed(upper);
    ASSERT_NO_FATAL_FAILURE(step());
    EXPECT_LE(summed(lower) - low, 2 * 64u);
    EXPECT_GE(summed(upper) - up, 2 * 99 * 64u);
    EXPECT_EQ(summed(0) + summed(1) - low - up, 2 * 100 * 64u);
  }
  EXPECT_EQ(job.workers[0]->client()->counters().rebalances, 2u);
}

TEST(Runtime, CloseEndsWhatARebalanceHolds) {
  for (const bool close_coordinator : {false, true}) {
    Job job({3, 0});
    ASSERT_NO_FATAL_FAILURE(job.Start());
    job.workers[2]->Propose(SharesWithout(1, 3));
    std::vector<std::unique_ptr<Call>> calls;
    for (uint32_t rank = 0; rank < 3; ++rank) {
      calls.push_back(std::make_unique<Call>(500, rank));
    }
    calls[1]->Run(job.workers[1].get(), "t");
    calls[2]->Run(job.workers[2].get(), "t");
    job.workers[close_coordinator ? 0 : 2]->Close();
    EXPECT_FALSE(calls[1]->Wait().ok());
    EXPECT_FALSE(calls[2]->Wait().ok());
    for (auto& worker : job.workers) worker->Close();
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, RuntimeTest,
                         testing::Values(Processes{2, 1}, Processes{3, 2},
                                         Processes{2, 0}, Processes{3, 0},
                                         Processes{2, 1, true},
                                         Processes{3, 2, true}),
                         [](const auto& info) {
                           return std::to_string(info.param.workers) +
                                  "Workers" +
                                  std::to_string(info.param.servers) +
                                  "Servers" + (info.param.mixed ? "Mixed" : "");
                         });

TEST(Runtime, WhoIsMissingIsNamedWhenTheStartTimeoutIsOver) {
  Job job({2, 2});
  Config config = job.ConfigOf(Role::kWorker, 0);
  config.start_timeout_ms = 300;
  const int64_t begin = NowMs();
  auto runtime = Runtime::Start(config);
  ASSERT_FALSE(runtime.ok());
  EXPECT_EQ(runtime.status().code(), Code::kDeadlineExceeded);
  EXPECT_NE(runtime.status().message().find("waiting for server 0 of 2 at " +
                                            job.base_.servers[0]),
            std::string::npos)
      << runtime.status().message();
  EXPECT_LT(NowMs() - begin, 5000);
}

TEST(Runtime, ACheckEndsTheWait) {
  Job job({2, 1});
  auto runtime = Runtime::Start(job.ConfigOf(Role::kWorker, 0),
                                [] { return Cancelled("enough"); });
  ASSERT_FALSE(runtime.ok());
  EXPECT_EQ(runtime.status().message(), "enough");
}

TEST(Runtime, AnotherTokenIsRefusedAtOnce) {
  Job job({2, 0});
  Config other = job.ConfigOf(Role::kWorker, 1);
  other.job_token = "another";
  auto first = Job::Launch(job.ConfigOf(Role::kWorker, 0));
  const int64_t begin = NowMs();
  auto second = Runtime::Start(other);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("token"), std::string::npos)
      << second.status().message();
  EXPECT_LT(NowMs() - begin, 5000);
  // The right one still gets in.
  auto right = Runtime::Start(job.ConfigOf(Role::kWorker, 1));
  EXPECT_TRUE(right.ok());
  EXPECT_TRUE(first.get().ok());
}

TEST(Runtime, ATakenPortIsNamed) {
  Job job({2, 0});
  auto first = Job::Launch(job.ConfigOf(Role::kWorker, 0));
  auto second = Job::Launch(job.ConfigOf(Role::kWorker, 1));
  ASSERT_TRUE(first.get().ok());
  std::shared_ptr<Runtime> holder = second.get().value();
  Job again({2, 0});
  again.base_.workers[0] = job.base_.workers[1];
  auto refused = Runtime::Start(again.ConfigOf(Role::kWorker, 0));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find(job.base_.workers[1]),
            std::string::npos)
      << refused.status().message();
}

TEST(CurrentRuntime, IsASlotForOne) {
  EXPECT_EQ(CurrentRuntime(), nullptr);
  Job job({2, 0});
  ASSERT_NO_FATAL_FAILURE(job.Start());
  SetCurrentRuntime(job.workers[1]);
  EXPECT_EQ(CurrentRuntime(), job.workers[1]);
  SetCurrentRuntime(nullptr);
  EXPECT_EQ(CurrentRuntime(), nullptr);
}

}  // namespace
}  // namespace byteps

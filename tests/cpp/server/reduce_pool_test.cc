#include "csrc/server/reduce_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

namespace byteps {
namespace {

Config Threads(int count) {
  Config config;
  config.workers = {"a:1"};
  config.servers = {"s:1"};
  config.reduce_threads = count;
  return config;
}

TEST(ReducePool, AKeyIsAlwaysOnTheSameThread) {
  BufferPool buffers(1 << 20);
  ReducePool pool(Threads(3), &buffers, [](const Outgoing&) {});
  std::mutex mutex;
  std::map<uint64_t, std::set<std::thread::id>> threads;
  std::set<std::thread::id> all;
  for (int i = 0; i < 300; ++i) {
    const Key key{static_cast<uint64_t>(i % 20), 0};
    pool.Post(key, [&, key](Aggregator*, Outbox*) {
      std::lock_guard<std::mutex> lock(mutex);
      threads[key.tensor].insert(std::this_thread::get_id());
      all.insert(std::this_thread::get_id());
    });
  }
  pool.Close();
  pool.Join();
  EXPECT_EQ(threads.size(), 20u);
  for (const auto& entry : threads) EXPECT_EQ(entry.second.size(), 1u);
  EXPECT_GT(all.size(), 1u);
}

TEST(ReducePool, EverythingBeforeCloseIsDoneAndNothingAfter) {
  BufferPool buffers(1 << 20);
  std::atomic<int> sent{0};
  std::atomic<int> done{0};
  ReducePool pool(Threads(2), &buffers, [&](const Outgoing&) { ++sent; });
  for (int i = 0; i < 100; ++i) {
    pool.Post({static_cast<uint64_t>(i), 0}, [&](Aggregator*, Outbox* out) {
      ++done;
      out->push_back(Outgoing());
    });
  }
  pool.PostToAll([&](Aggregator*, Outbox*) { done += 1000; });
  pool.Close();
  pool.Post({1, 0}, [&](Aggregator*, Outbox*) { done += 1000000; });
  pool.Join();
  pool.Join();
  EXPECT_EQ(done, 2100);
  EXPECT_EQ(sent, 100);
}

TEST(ReducePool, WhatIsLittleIsDoneAtOnceAndSentByTheThread) {
  BufferPool buffers(1 << 20);
  const auto here = std::this_thread::get_id();
  std::atomic<int> sent{0}, sent_here{0}, done{0};
  ReducePool pool(Threads(1), &buffers, [&](const Outgoing&) {
    ++sent;
    sent_here += std::this_thread::get_id() == here;
  });
  const auto little = [&](Aggregator*, Outbox* out) {
    done += std::this_thread::get_id() == here ? 1 : 1000;
    out->push_back(Outgoing());
  };
  pool.Do({1, 0}, little);
  EXPECT_EQ(done, 1);
  // Behind something long it waits for its turn.
  std::promise<void> began, end;
  pool.Post({1, 0}, [&](Aggregator*, Outbox*) {
    began.set_value();
    end.get_future().wait();
  });
  began.get_future().wait();
  pool.Do({1, 0}, little);
  EXPECT_EQ(done, 1);
  end.set_value();
  pool.Close();
  pool.Join();
  EXPECT_EQ(done, 1001);
  EXPECT_EQ(sent, 2);
  EXPECT_EQ(sent_here, 0);
  pool.Do({1, 0}, little);
  EXPECT_EQ(done, 1001);
}

TEST(ReducePool, WhatWasBegunElsewhereIsStillFoundToStall) {
  Config config = Threads(1);
  config.workers = {"a:1", "b:1"};
  config.stall_warning_ms = config.stall_limit_ms = 40;
  BufferPool buffers(1 << 20);
  std::promise<void> failed;
  std::atomic<bool> told{false};
  ReducePool pool(config, &buffers, [&](const Outgoing& outgoing) {
    if (outgoing.kind == Kind::kRoundError && !told.exchange(true)) {
      failed.set_value();
    }
  });
  // The thread sleeps, for nothing is open.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  pool.Do({1, 0}, [](Aggregator* aggregator, Outbox* out) {
    auto declaration = std::make_shared<Declaration>();
    declaration->shape = {0};
    Contribution contribution;
    contribution.declaration = declaration;
    aggregator->Push({1, 0}, std::move(contribution), NowMs(), out);
  });
  EXPECT_EQ(failed.get_future().wait_for(std::chrono::seconds(30)),
            std::future_status::ready);
}

TEST(ReducePool, OneAggregatorAnswersWhatAllWereTold) {
  BufferPool buffers(1 << 20);
  std::atomic<int> answers{0};
  ReducePool pool(Threads(3), &buffers, [&](const Outgoing& outgoing) {
    if (outgoing.kind == Kind::kJoined) ++answers;
  });
  pool.PostToAll(
      [](Aggregator* a, Outbox* out) { a->WorkerJoined(0, 0, out); });
  pool.Close();
  pool.Join();
  EXPECT_EQ(answers, 1);
}

}  // namespace
}  // namespace byteps

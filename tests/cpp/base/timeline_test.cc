#include "csrc/base/timeline.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace byteps {
namespace {

constexpr int64_t kWallNs = 1796232765123456789;  // 2026-12-02 17:32:45 UTC

class TimelineTest : public testing::Test {
 protected:
  TimelineTest() {
    char name[] = "/tmp/byteps-timeline-XXXXXX";
    folder_ = mkdtemp(name);
    config_.self = {Role::kWorker, 1};
    config_.workers = {"a:1", "b:1"};
    config_.servers = {"s:1"};
    timeline_ = std::make_unique<Timeline>(config_);
  }
  ~TimelineTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const {
    return folder_ + "/20261202-173245-123456/" + name;
  }
  static std::string Text(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  static size_t Count(const std::string& text, const std::string& part) {
    size_t count = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) {
      ++count;
    }
    return count;
  }
  Span At(int64_t begin_ns, int64_t end_ns, uint64_t tensor = 7) {
    Span span;
    span.what = Span::What::kPush;
    span.tensor = tensor;
    span.round = 3;
    span.bytes = 4096;
    span.partition = 2;
    span.rank = 1;
    span.begin_ns = base_ns_ + begin_ns;
    span.end_ns = base_ns_ + end_ns;
    return span;
  }

  std::string folder_;
  Config config_;
  // Later than any start of this test, and full microseconds.
  const int64_t base_ns_ = (NowNs() / 1000 + 3600000000) * 1000;
  std::unique_ptr<Timeline> timeline_;
};

TEST_F(TimelineTest, OffItHasNoTimeAndKeepsNothing) {
  EXPECT_EQ(NowOn(nullptr), 0);
  EXPECT_EQ(timeline_->Now(), 0);
  timeline_->Add(At(0, 10));
  timeline_->SetJob(kWallNs);
  timeline_->Stop();
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(TimelineTest, ASpanIsALineWithTheTensorsName) {
  ASSERT_TRUE(timeline_->Start(folder_).ok());
  EXPECT_GT(timeline_->Now(), 0);
  timeline_->Name(7, "a \"b\"\n");
  timeline_->Add(At(1500, 4001));
  timeline_->SetJob(kWallNs);
  timeline_->SetJob(1);  // the first one stands
  timeline_->SetClock(-5, 2);
  timeline_->Stop();
  EXPECT_EQ(timeline_->Now(), 0);
  const std::string text = Text(Path("worker-1.json"));
  const std::string us = std::to_string(base_ns_ / 1000 + 1);
  EXPECT_EQ(
      Count(text,
            "{\"ph\":\"X\",\"cat\":\"push\",\"name\":\"a \\\"b\\\"\\u000a\","
            "\"pid\":3,\"tid\":1,\"ts\":" +
                us +
                ".500,\"dur\":2.501,\"args\":{\"tensor\":\"7\","
                "\"partition\":2,\"round\":3,\"bytes\":4096,\"peer\":0,"
                "\"rank\":1}},\n"),
      1u)
      << text;
  EXPECT_EQ(text.substr(0, 2), "[\n");
  EXPECT_EQ(text.substr(text.size() - 4), "}\n]\n");
  EXPECT_EQ(Count(text, "\"offset_ns\":-5,\"error_ns\":2"), 1u);
  EXPECT_EQ(Count(text, "\"job\":\"20261202-173245-123456\""), 1u);
  EXPECT_EQ(Count(text, "\"process\":\"worker 1\""), 1u);
  EXPECT_EQ(Count(text, "\"coordinator\":\"server 0\""), 1u);
  EXPECT_EQ(Count(text, "\"name\":\"push to server 0\""), 1u);
  EXPECT_EQ(Count(text, "\"dropped\":0"), 1u);
}

TEST_F(TimelineTest, WhatOverlapsHasRowsOfItsOwn) {
  ASSERT_TRUE(timeline_->Start(folder_).ok());
  timeline_->SetJob(kWallNs);
  timeline_->Add(At(0, 10));
  timeline_->Add(At(5, 15));
  timeline_->Add(At(10, 20));  // where the first one ended
  timeline_->Stop();
  const std::string text = Text(Path("worker-1.json"));
  EXPECT_EQ(Count(text, "\"pid\":3,\"tid\":1,\"ts\""), 2u) << text;
  EXPECT_EQ(Count(text, "\"pid\":3,\"tid\":2,\"ts\""), 1u);
  EXPECT_EQ(Count(text, "\"name\":\"push to server 0 (2)\""), 1u);
}

TEST_F(TimelineTest, AFreeRowIsTheFirstOne) {
  ASSERT_TRUE(timeline_->Start(folder_).ok());
  timeline_->SetJob(kWallNs);
  const auto add = [this](int64_t begin_ns, int64_t end_ns) {
    timeline_->Add(At(begin_ns, end_ns));
  };
  for (int i = 0; i < 100; ++i) add(0, 1000 + 1000 * i);  // one each
  add(3000, 500000);  // 1, as 2 and 3 would be
  add(3000, 4000);    // 2
  add(3000, 500000);  // 3
  add(4000, 500000);  // 2
  add(4000, 500000);  // 4
  add(100000, 500000);
  add(600000, 600001);  // 1
  timeline_->Stop();
  const std::string text = Text(Path("worker-1.json"));
  std::vector<int> rows;
  size_t at = 0;
  const std::string mark = "\"tid\":";
  while ((at = text.find("\"ph\":\"X\"", at)) != std::string::npos) {
    at = text.find(mark, at) + mark.size();
    rows.push_back(std::stoi(text.substr(at)));
  }
  std::vector<int> expected;
  for (int i = 1; i <= 100; ++i) expected.push_back(i);
  for (int row : {1, 2, 3, 2, 4, 5, 1}) expected.push_back(row);
  EXPECT_EQ(rows, expected);
  EXPECT_EQ(Count(text, "\"name\":\"push to server 0 (100)\""), 1u);
  EXPECT_EQ(Count(text, "\"name\":\"push to server 0 (101)\""), 0u);
}

TEST_F(TimelineTest, WhatIsNamedLaterHasTheNameFromThenOn) {
  ASSERT_TRUE(timeline_->Start(folder_).ok());
  timeline_->SetJob(kWallNs);
  timeline_->Add(At(0, 1));
  timeline_->Name(7, std::string(3000, 'n'));
  timeline_->Add(At(1, 2));
  timeline_->Stop();
  const std::string text = Text(Path("worker-1.json"));
  EXPECT_EQ(Count(text, "\"ph\":\"X\""), 2u);
  EXPECT_GE(Count(text, "\"name\":\"" + std::string(3000, 'n') + "\""), 1u);
}

TEST_F(TimelineTest, ALabelHoldsForWhatStandsBehindTheName) {
  timeline_->Label("f/push_pull.1", "dense/kernel");
  ASSERT_TRUE(timeline_->Start(folder_).ok());
  timeline_->SetJob(kWallNs);
  timeline_->Name(1, "f/push_pull.1");
  timeline_->Name(2, "f/push_pull.1/values/rank0");
  timeline_->Name(3, "f/push_pull.10");
  for (uint64_t tensor : {1, 2, 3}) {
    timeline_->Add(At(0, 1, tensor));
  }
  timeline_->Stop();
  const std::string text = Text(Path("worker-1.json"));
  EXPECT_EQ(Count(text, "\"name\":\"dense/kernel\""), 1u) << text;
  EXPECT_EQ(Count(text, "\"name\":\"dense/kernel/values/rank0\""), 1u);
  EXPECT_EQ(Count(text, "\"name\":\"f/push_pull.10\""), 1u);
}

TEST_F(TimelineTest, WhatBeganBeforeIsDropped) {
  const int64_t before_ns = NowNs();
  ASSERT_TRUE(timeline_->Start(folder_).ok());
  timeline_->SetJob(kWallNs);
  Span span = At(0, 1);
  span.begin_ns = before_ns;
  timeline_->Add(span);
  span.begin_ns = 0;
  timeline_->Add(span);
  timeline_->Stop();
  EXPECT_EQ(Count(Text(Path("worker-1.json")), "\"ph\":\"X\""), 0u);
}

TEST_F(TimelineTest, EachRecordingHasAFile) {
  timeline_->SetJob(kWallNs);
  ASSERT_TRUE(timeline_->Start(folder_).ok());
  EXPECT_EQ(timeline_->Start(folder_).code(), Code::kFailedPrecondition);
  timeline_->Name(7, "t");
  timeline_->Stop();
  timeline_->Stop();
  ASSERT_TRUE(timeline_->Start(folder_).ok());
  timeline_->Name(7, "t");
  timeline_->Add(At(0, 1));
  timeline_->Stop();
  EXPECT_EQ(Count(Text(Path("worker-1.json")), "\"name\":\"t\""), 0u);
  EXPECT_EQ(Count(Text(Path("worker-1.2.json")), "\"name\":\"t\""), 1u);
}

TEST_F(TimelineTest, WithoutAJobThereIsNoFile) {
  ASSERT_TRUE(timeline_->Start(folder_).ok());
  timeline_->Add(At(0, 1));
  timeline_->Stop();
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(TimelineTest, AFolderThatCannotBeMadeIsAnError) {
  const Status status = timeline_->Start("/dev/null/x");
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "timeline: cannot write to /dev/null/x: Not a directory");
  EXPECT_EQ(timeline_->Now(), 0);
}

TEST_F(TimelineTest, ManyThreadsAndADiskThatDoesNotKeepUpLoseNothingUncounted) {
  constexpr int kThreads = 4, kSpans = 500, kCapacity = 1000;
  timeline_ = std::make_unique<Timeline>(config_, kCapacity);
  ASSERT_TRUE(timeline_->Start(folder_).ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < kSpans; ++i) {
        timeline_->Name(t, "t" + std::to_string(t));
        timeline_->Add(At(10 * i, 10 * i + 1, t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  timeline_->SetJob(kWallNs);  // no sooner could anything be written
  timeline_->Stop();
  const std::string text = Text(Path("worker-1.json"));
  const size_t written = Count(text, "\"ph\":\"X\"");
  EXPECT_EQ(written, size_t{kCapacity});
  EXPECT_EQ(
      Count(text, "\"dropped\":" + std::to_string(kThreads * kSpans - written)),
      1u);
}

}  // namespace
}  // namespace byteps

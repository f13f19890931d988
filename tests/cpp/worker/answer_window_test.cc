#include "csrc/worker/answer_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

namespace byteps {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr uint64_t kPart = 64 << 10;

// A window and the pace of all answers, of which its own are the only ones.
class Window {
 public:
  bool Allows(uint64_t bytes, int64_t now_ns, int64_t priority = 0) {
    window_.SetPace(pace_.fastest());
    return window_.Allows(bytes, priority, now_ns, pace_);
  }
  uint64_t Pushed(uint64_t bytes, int64_t now_ns, int64_t priority = 0) {
    pace_.Pushed(bytes, now_ns);
    return window_.Pushed(bytes, priority, now_ns);
  }
  // `place` as Pushed gave it; 0: the first of its priority.
  void Answered(uint64_t bytes, int64_t took_ns, int64_t now_ns,
                int64_t priority = 0, uint64_t place = 0) {
    window_.Answered(bytes, priority, place, took_ns, now_ns);
    pace_.Answered(bytes, took_ns <= 0, now_ns);
  }
  void OtherAnswered(uint64_t bytes, int64_t now_ns) {
    pace_.Pushed(bytes, now_ns);
    pace_.Answered(bytes, false, now_ns);
  }
  void SetWeight(double weight) { window_.SetWeight(weight); }
  void NarrowTo(double part) { window_.NarrowTo(part); }
  int64_t opens_ns() const { return window_.opens_ns(); }
  uint64_t BytesFor(uint64_t bytes) const { return window_.BytesFor(bytes); }

  // Pushes what goes; returns how much.
  uint64_t Fill(int64_t now_ns, int64_t priority = 0) {
    uint64_t pushed = 0;
    for (; Allows(kPart, now_ns, priority); pushed += kPart) {
      Pushed(kPart, now_ns, priority);
    }
    return pushed;
  }

 private:
  AnswerWindow window_;
  AnswerPace pace_;
};

// Pushes as much as the window allows to a server that takes a partition every
// `interval` and answers `delay` after it has it. Returns the most bytes that
// were unanswered.
uint64_t Flow(Window* window, int partitions, int64_t interval, int64_t delay,
              int64_t* now) {
  std::deque<std::pair<int64_t, int64_t>> under_way;  // pushed, answered
  uint64_t most = 0;
  int64_t free_at = *now;
  while (partitions > 0 || !under_way.empty()) {
    while (partitions > 0 && window->Allows(kPart, *now)) {
      window->Pushed(kPart, *now);
      free_at = std::max(free_at, *now) + interval;
      under_way.emplace_back(*now, free_at + delay);
      most = std::max<uint64_t>(most, under_way.size() * kPart);
      --partitions;
    }
    *now = under_way.front().second;
    window->Answered(kPart, *now - under_way.front().first, *now);
    under_way.pop_front();
  }
  return most;
}

TEST(AnswerWindow, IsAFewPartitionsWhereNothingIsKnown) {
  Window window;
  const uint64_t pushed = window.Fill(0);
  EXPECT_EQ(pushed, window.BytesFor(kPart));
  EXPECT_LE(pushed, 4 * kPart);
}

TEST(AnswerWindow, OnePartitionAlwaysGoesHoweverLarge) {
  Window window;
  EXPECT_TRUE(window.Allows(uint64_t{1} << 40, 0));
}

TEST(AnswerWindow, GrowsToWhatALongFastPathNeedsAndNotMuchBeyond) {
  // 64 KiB a millisecond over a path of 50 ms.
  Window window;
  int64_t now = 0;
  const uint64_t needed = 51 * kPart;
  Flow(&window, 2000, kMs, 50 * kMs, &now);
  const uint64_t most = Flow(&window, 500, kMs, 50 * kMs, &now);
  EXPECT_GT(most, needed);
  EXPECT_LT(most, needed * 5 / 4);
}

TEST(AnswerWindow, ReachesTheRateOfAVeryLongPath) {
  // 64 KiB a millisecond over a path of 200 ms.
  Window window;
  int64_t now = 0;
  Flow(&window, 10000, kMs, 200 * kMs, &now);
  const int64_t begin = now;
  Flow(&window, 10000, kMs, 200 * kMs, &now);
  EXPECT_LT(now - begin, 12000 * kMs);
}

TEST(AnswerWindow, ReachesTheRateOfALongPathAfterLittleTraffic) {
  // For 60 s a partition in 200 ms, then one a millisecond, over 50 ms.
  Window window;
  int64_t now = 0;
  Flow(&window, 300, 200 * kMs, 50 * kMs, &now);
  const int64_t begin = now;
  Flow(&window, 10000, kMs, 50 * kMs, &now);
  EXPECT_LT(now - begin, 12000 * kMs);
}

TEST(AnswerWindow, HoldsWhatIsAnsweredSoonOfLargePartitions) {
  // 64 KiB in 4 ms.
  Window window;
  int64_t now = 0;
  Flow(&window, 500, 4 * kMs, kMs, &now);
  EXPECT_LE(window.BytesFor(4 * kPart), 11 * kPart);
  EXPECT_GE(window.BytesFor(4 * kPart), 8 * kPart);
  // Of the largest there are two: one is summed while the next comes.
  EXPECT_EQ(window.BytesFor(64 * kPart), 128 * kPart);
}

TEST(AnswerWindow, StaysSmallWhereTheAnswersAreSlowForWantOfBandwidth) {
  // A path of 1 ms that takes 64 KiB in 4 ms: more only waits.
  Window window;
  int64_t now = 0;
  Flow(&window, 500, 4 * kMs, kMs, &now);
  EXPECT_LE(Flow(&window, 500, 4 * kMs, kMs, &now), 6 * kPart);
}

TEST(AnswerWindow, OpensByMoreEachTimeWhereNoAnswerComes) {
  Window window;
  int64_t now = 0;
  uint64_t pushed = 0;
  int waits = 0;
  while (pushed < 100 * kPart) {
    if (window.Allows(kPart, now)) {
      window.Pushed(kPart, now);
      pushed += kPart;
      continue;
    }
    EXPECT_GT(window.opens_ns(), now);
    EXPECT_LE(window.opens_ns(), now + 200 * kMs);
    EXPECT_FALSE(window.Allows(kPart, window.opens_ns() - 1));
    now = window.opens_ns();
    ++waits;
  }
  EXPECT_LE(waits, 8);
}

TEST(AnswerWindow, AnswersCloseItAgain) {
  Window window;
  int64_t now = 0;
  for (int pushed = 0; pushed < 100;) {
    if (window.Allows(kPart, now)) {
      window.Pushed(kPart, now);
      ++pushed;
    } else {
      now = window.opens_ns();
    }
  }
  for (int i = 0; i < 100; ++i) window.Answered(kPart, 50 * kMs, now);
  Flow(&window, 5000, 4 * kMs, kMs, &now);
  EXPECT_LE(Flow(&window, 500, 4 * kMs, kMs, &now), 6 * kPart);
}

TEST(AnswerWindow, AWorkerThatIsEarlyIsBackAtItsWindowWithTheFirstAnswers) {
  Window window;
  const uint64_t at_first = window.Fill(0);
  int64_t now = 0;
  uint64_t pushed = at_first;
  while (pushed < 100 * kPart) {
    now = window.opens_ns();
    pushed += window.Fill(now);
  }
  for (uint64_t place = 0; place < pushed; place += kPart) {
    window.Answered(kPart, now, now, 0, place);
  }
  EXPECT_LE(window.Fill(now), window.BytesFor(kPart));
}

// Milliseconds that two workers take, which push a partition a millisecond,
// with all partitions in these orders.
int64_t TimeOfTwo(const std::vector<int>& first,
                  const std::vector<int>& second) {
  Window windows[2];
  const std::vector<int>* orders[2] = {&first, &second};
  size_t next[2] = {0, 0};
  std::vector<int64_t> pushed[2];
  for (auto& times : pushed) times.resize(first.size(), -1);
  std::vector<uint64_t> places[2];
  for (auto& of_worker : places) of_worker.resize(first.size());
  size_t answered = 0;
  // A clock begins when its machine does, long before.
  constexpr int64_t kBeginMs = 1'000'000;
  int64_t ms = kBeginMs;
  for (; answered < first.size(); ++ms) {
    for (int w = 0; w < 2; ++w) {
      if (next[w] == first.size()) continue;
      if (!windows[w].Allows(kPart, ms * kMs)) continue;
      const int partition = (*orders[w])[next[w]++];
      places[w][partition] = windows[w].Pushed(kPart, ms * kMs);
      pushed[w][partition] = ms;
      if (pushed[1 - w][partition] < 0) continue;
      ++answered;
      for (int v = 0; v < 2; ++v) {
        const int64_t took = (ms + 1 - pushed[v][partition]) * kMs;
        windows[v].Answered(kPart, took, ms * kMs, 0, places[v][partition]);
      }
    }
  }
  return ms - kBeginMs;
}

TEST(AnswerWindow, WorkersThatPushInOtherOrdersAreNotHeldUpForLong) {
  std::vector<int> up(1000);
  for (int i = 0; i < 1000; ++i) up[i] = i;
  std::vector<int> down(up.rbegin(), up.rend());
  // In blocks, so that answers trickle while most of what was pushed has none.
  std::vector<int> blocks;
  for (int block = 0; block < 1000; block += 20) {
    for (int i = 19; i >= 0; --i) blocks.push_back(block + i);
  }
  EXPECT_LE(TimeOfTwo(up, up), 1010);
  EXPECT_LE(TimeOfTwo(up, down), 1300);
  EXPECT_LE(TimeOfTwo(up, blocks), 1500);
}

TEST(AnswerWindow, AnOrderThatDiffersAllTheTimeIsWaitedForOnce) {
  std::vector<int> up(10000);
  for (int i = 0; i < 10000; ++i) up[i] = i;
  std::vector<int> blocks;
  for (int block = 0; block < 10000; block += 20) {
    for (int i = 19; i >= 0; --i) blocks.push_back(block + i);
  }
  EXPECT_LE(TimeOfTwo(up, blocks), 10300);
}

// Two workers that push a partition a millisecond of what a backward pass has
// given them so far, its last layer first: the first layer there is goes first.
// The second worker has each layer `late` later. Returns the time in ms.
int64_t TimeOfBackwardPasses(int64_t late) {
  constexpr int kLayers = 8, kOfLayer = 100;
  constexpr int64_t kLayerMs = 50;
  Window windows[2];
  int next[2][kLayers] = {};
  int64_t pushed[2][kLayers][kOfLayer] = {};
  int answered = 0;
  int64_t ms = 1;
  for (; answered < kLayers * kOfLayer; ++ms) {
    for (int w = 0; w < 2; ++w) {
      int layer = 0;
      while (layer < kLayers &&
             (next[w][layer] == kOfLayer ||
              ms < (kLayers - layer) * kLayerMs + w * late)) {
        ++layer;
      }
      if (layer == kLayers) continue;
      if (!windows[w].Allows(kPart, ms * kMs, -layer)) continue;
      windows[w].Pushed(kPart, ms * kMs, -layer);
      const int partition = next[w][layer]++;
      pushed[w][layer][partition] = ms;
      if (pushed[1 - w][layer][partition] == 0) continue;
      ++answered;
      for (int v = 0; v < 2; ++v) {
        const int64_t took = (ms + 1 - pushed[v][layer][partition]) * kMs;
        windows[v].Answered(kPart, took, ms * kMs, -layer);
      }
    }
  }
  return ms;
}

TEST(AnswerWindow, GradientsThatComeLaterToOneWorkerCostNoMoreThanThat) {
  const int64_t together = TimeOfBackwardPasses(0);
  for (int64_t late : {1, 5, 20, 49}) {
    EXPECT_LE(TimeOfBackwardPasses(late), together + 8 * late) << late;
  }
}

TEST(AnswerWindow, DoesNotOpenWhereAnswersAreOnlySlow) {
  // 64 KiB in 50 ms.
  Window window;
  int64_t now = 0;
  Flow(&window, 100, 50 * kMs, kMs, &now);
  EXPECT_LE(Flow(&window, 100, 50 * kMs, kMs, &now), 6 * kPart);
}

TEST(AnswerWindow, SmallOnesThatGoFirstDoNotMakeALargeOneWaitForEver) {
  Window window;
  window.Fill(0);
  for (int64_t now = 0; now < 1000 * kMs; now += kMs) {
    if (window.Allows(kPart, now)) return;
    if (!window.Allows(4, now)) continue;
    window.Pushed(4, now);
    window.Answered(4, kMs, now + kMs / 2);
  }
  FAIL() << "a second passed";
}

TEST(AnswerWindow, AnUrgentOneDoesNotWaitForThoseThatAreLess) {
  Window window;
  const uint64_t first = window.Fill(0, -5);
  EXPECT_FALSE(window.Allows(kPart, 0, -6));
  EXPECT_EQ(window.Fill(0, 3), first);
  EXPECT_FALSE(window.Allows(kPart, 0, -5));
  window.Answered(kPart, kMs, kMs, 3);
  EXPECT_TRUE(window.Allows(kPart, kMs, 3));
  EXPECT_FALSE(window.Allows(kPart, kMs, -5));
}

TEST(AnswerWindow, StaysShutWhileOtherServersAnswer) {
  Window window;
  int64_t now = 0;
  const auto others = [&](int64_t ms, uint64_t bytes) {
    for (const int64_t end = now + ms * kMs; now < end; now += kMs) {
      window.OtherAnswered(bytes, now);
      if (window.Fill(now) > 0) return true;
    }
    return false;
  };
  EXPECT_GT(window.Fill(now), 0u);
  EXPECT_FALSE(others(3000, kPart));
  EXPECT_FALSE(others(3000, kPart * 3 / 4));
  EXPECT_TRUE(others(1000, kPart / 4));
}

TEST(AnswerPace, IsNotKnownFromOneAnswer) {
  AnswerPace pace;
  const int64_t now = 1'000'000 * kMs;
  pace.Pushed(2 * kPart, now);
  pace.Answered(kPart, false, now + kMs);
  EXPECT_EQ(pace.TripNs(), 0);
  for (int ms = 2; ms < 200; ++ms) {
    pace.Pushed(kPart, now + ms * kMs);
    pace.Answered(kPart, false, now + ms * kMs);
  }
  EXPECT_NEAR(pace.TripNs(), 1.0 * kMs, 0.1 * kMs);
}

TEST(AnswerWindow, HasMoreForAServerThatSumsMore) {
  Window large, small;
  large.SetWeight(2);
  small.SetWeight(0.5);
  const uint64_t one = Window().BytesFor(kPart);
  EXPECT_EQ(large.BytesFor(kPart), 2 * one);
  EXPECT_EQ(small.BytesFor(kPart), one / 2);
}

TEST(AnswerWindow, IsNarrowForAServerThatIsAhead) {
  Window window;
  const uint64_t whole = window.BytesFor(kPart);
  window.NarrowTo(0.5);
  EXPECT_EQ(window.Fill(0), whole / 2);
}

TEST(AnswerWindow, WhatWasGivenUpTeachesNothing) {
  Window window;
  const uint64_t before = window.BytesFor(kPart);
  for (int i = 0; i < 100; ++i) {
    window.Pushed(kPart, i);
    window.Answered(kPart, 0, i);
  }
  EXPECT_EQ(window.BytesFor(kPart), before);
}

}  // namespace
}  // namespace byteps

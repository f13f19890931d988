#include "csrc/worker/answer_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <utility>

namespace byteps {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr uint64_t kPart = 64 << 10;

// Pushes as much as the window allows to a server that takes a partition every
// `interval` and answers `delay` after it has it. Returns the most bytes that
// were unanswered.
uint64_t Flow(AnswerWindow* window, int partitions, int64_t interval,
              int64_t delay, int64_t* now) {
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
  AnswerWindow window;
  uint64_t pushed = 0;
  while (window.Allows(kPart, 0)) {
    window.Pushed(kPart, 0);
    pushed += kPart;
  }
  EXPECT_EQ(pushed, window.BytesFor(kPart));
  EXPECT_LE(pushed, 4 * kPart);
}

TEST(AnswerWindow, OnePartitionAlwaysGoesHoweverLarge) {
  AnswerWindow window;
  EXPECT_TRUE(window.Allows(uint64_t{1} << 40, 0));
}

TEST(AnswerWindow, GrowsToWhatALongFastPathNeedsAndNotMuchBeyond) {
  // 64 KiB a millisecond over a path of 50 ms.
  AnswerWindow window;
  int64_t now = 0;
  const uint64_t needed = 51 * kPart;
  Flow(&window, 2000, kMs, 50 * kMs, &now);
  const uint64_t most = Flow(&window, 500, kMs, 50 * kMs, &now);
  EXPECT_GT(most, needed);
  EXPECT_LT(most, needed * 5 / 4);
}

TEST(AnswerWindow, StaysSmallWhereTheAnswersAreSlowForWantOfBandwidth) {
  // A path of 1 ms that takes 64 KiB in 4 ms: more only waits.
  AnswerWindow window;
  int64_t now = 0;
  Flow(&window, 500, 4 * kMs, kMs, &now);
  EXPECT_LE(Flow(&window, 500, 4 * kMs, kMs, &now), 6 * kPart);
}

TEST(AnswerWindow, OpensByMoreEachTimeWhereNoAnswerComes) {
  AnswerWindow window;
  int64_t now = 0;
  uint64_t pushed = 0;
  int waits = 0;
  while (pushed < 100 * kPart) {
    if (window.Allows(kPart, now)) {
      window.Pushed(kPart, now);
      pushed += kPart;
      continue;
    }
    EXPECT_EQ(window.opens_ns(), now + AnswerWindow::kPatienceNs);
    EXPECT_FALSE(window.Allows(kPart, window.opens_ns() - 1));
    now = window.opens_ns();
    ++waits;
  }
  EXPECT_LE(waits, 8);
}

TEST(AnswerWindow, AnAnswerClosesItAgain) {
  AnswerWindow window;
  while (window.Allows(kPart, 0)) window.Pushed(kPart, 0);
  const int64_t opens = window.opens_ns();
  ASSERT_TRUE(window.Allows(kPart, opens));
  window.Pushed(kPart, opens);
  window.Answered(kPart, kMs, opens);
  EXPECT_GT(window.opens_ns(), opens);
  EXPECT_TRUE(!window.Allows(kPart, opens));
}

TEST(AnswerWindow, WhatWasGivenUpTeachesNothing) {
  AnswerWindow window;
  const uint64_t before = window.BytesFor(kPart);
  for (int i = 0; i < 100; ++i) {
    window.Pushed(kPart, i);
    window.Answered(kPart, 0, i);
  }
  EXPECT_EQ(window.BytesFor(kPart), before);
}

}  // namespace
}  // namespace byteps

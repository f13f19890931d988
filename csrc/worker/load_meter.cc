#include "csrc/worker/load_meter.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace byteps {
namespace {

// Busy for so much longer than the others is uneven.
constexpr double kUneven = 1.25;
constexpr int kPeriods = 2;  // in a row
// A server never sums less than this part of what was planned, so that there
// is something to measure it by.
constexpr uint64_t kLeastPart = 16;
// A change of less than this part of a planned share is not worth a rebalance.
constexpr uint64_t kLeastChange = 32;
// Of the way to the shares that the measurement asks for, as an exponent.
constexpr double kDamping = 0.75;

}  // namespace

LoadMeter::LoadMeter(std::vector<uint64_t> planned, uint32_t own)
    : planned_(std::move(planned)),
      compared_(planned_.size()),
      shares_(planned_),
      sum_(planned_.size()) {
  for (size_t i = 0; i < planned_.size(); ++i) {
    compared_[i] = i != own && planned_[i] > 0;
  }
}

std::vector<uint64_t> LoadMeter::Measure(const std::vector<Load>& totals) {
  if (std::exchange(restart_, false)) {
    begin_ = totals;
    return {};
  }
  std::vector<double> busy(totals.size());
  int64_t most_ns = 0;
  bool much = false;
  for (size_t i = 0; i < totals.size(); ++i) {
    const int64_t busy_ns = totals[i].busy_ns - begin_[i].busy_ns;
    if (busy_ns < 0) return {};  // another thread was quicker
    busy[i] = static_cast<double>(busy_ns);
    if (!compared_[i]) continue;
    most_ns = std::max(most_ns, busy_ns);
    const uint64_t bytes = totals[i].bytes - begin_[i].bytes;
    much = much || static_cast<double>(bytes) * kLeastBusyNs >
                       static_cast<double>(kLeastBytes) * busy[i];
  }
  if (most_ns < kLeastBusyNs) return {};
  begin_ = totals;
  if (!much || !Uneven(busy)) {
    uneven_ = 0;
    std::fill(sum_.begin(), sum_.end(), 0);
    return {};
  }
  for (size_t i = 0; i < busy.size(); ++i) sum_[i] += busy[i];
  if (++uneven_ < kPeriods) return {};
  std::vector<uint64_t> better = Better(sum_);
  uneven_ = 0;
  std::fill(sum_.begin(), sum_.end(), 0);
  return better;
}

bool LoadMeter::Uneven(const std::vector<double>& busy) const {
  double sum = 0;
  int count = 0;
  for (size_t i = 0; i < busy.size(); ++i) {
    if (!compared_[i]) continue;
    sum += busy[i];
    ++count;
  }
  if (count < 2) return false;
  for (size_t i = 0; i < busy.size(); ++i) {
    if (!compared_[i]) continue;
    const double others = (sum - busy[i]) / (count - 1);
    if (busy[i] > kUneven * others) return true;
    if (shares_[i] < planned_[i] && kUneven * busy[i] < others) return true;
  }
  return false;
}

std::vector<uint64_t> LoadMeter::Better(const std::vector<double>& busy) const {
  std::vector<size_t> open;  // servers above their least part
  double sum = 0;
  uint64_t whole = 0;  // what those that are compared sum together
  for (size_t i = 0; i < busy.size(); ++i) {
    if (!compared_[i]) continue;
    open.push_back(i);
    sum += busy[i];
    whole += shares_[i];
  }
  const double mean = sum / static_cast<double>(open.size());
  std::vector<double> wanted(busy.size());
  for (size_t i : open) {
    const double pace = mean / std::max(busy[i], mean / kLeastPart);
    wanted[i] = static_cast<double>(shares_[i]) * std::pow(pace, kDamping);
  }
  std::vector<uint64_t> better = shares_;
  bool again = true;
  while (again) {
    double wanted_sum = 0;
    for (size_t i : open) wanted_sum += wanted[i];
    uint64_t given = 0;
    std::vector<size_t> above;
    for (size_t i : open) {
      const uint64_t least = planned_[i] / kLeastPart + 1;
      better[i] = static_cast<uint64_t>(static_cast<double>(whole) *
                                        (wanted[i] / wanted_sum));
      if (better[i] > least) {
        above.push_back(i);
        given += better[i];
      } else {
        better[i] = least;
      }
    }
    again = above.size() < open.size();
    if (again) {
      for (size_t i : open) {
        if (std::find(above.begin(), above.end(), i) == above.end()) {
          whole -= better[i];
        }
      }
    } else {
      better[open.front()] += whole - given;  // what rounding has left over
    }
    open = std::move(above);
  }
  for (size_t i = 0; i < better.size(); ++i) {
    const uint64_t by =
        std::max(better[i], shares_[i]) - std::min(better[i], shares_[i]);
    if (by * kLeastChange > planned_[i]) return better;
  }
  return {};
}

void LoadMeter::Changed(std::vector<uint64_t> shares) {
  shares_ = std::move(shares);
  uneven_ = 0;
  std::fill(sum_.begin(), sum_.end(), 0);
  restart_ = true;
}

}  // namespace byteps

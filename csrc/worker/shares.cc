#include "csrc/worker/shares.h"

#include <algorithm>
#include <numeric>

namespace byteps {
namespace {

using Numbers = std::vector<uint64_t>;
// No product below can overflow it.
using Wide = unsigned __int128;

// What the fastest link counts as.
constexpr double kFastest = 1 << 20;

// Relative bandwidths of `count` hosts from `first` on. One product and one
// quotient are rounded alike on every machine.
Numbers Bandwidths(const Config& config, size_t first, size_t count) {
  Numbers relative(count, static_cast<uint64_t>(kFastest));
  const std::vector<double>& given = config.bandwidths;
  if (given.empty()) return relative;
  const double fastest = *std::max_element(given.begin(), given.end());
  for (size_t i = 0; i < count; ++i) {
    const double scaled = given[first + i] * kFastest / fastest;
    relative[i] = std::max<uint64_t>(static_cast<uint64_t>(scaled), 1);
  }
  return relative;
}

uint64_t Sum(const Numbers& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), uint64_t{0});
}

// `whole`, divided in proportion to `weights`; rounded down.
Numbers Divided(uint64_t whole, const Numbers& weights) {
  const uint64_t sum = Sum(weights);
  Numbers parts(weights.size());
  for (size_t i = 0; sum > 0 && i < weights.size(); ++i) {
    parts[i] = static_cast<uint64_t>(Wide{whole} * weights[i] / sum);
  }
  return parts;
}

// The shares of dedicated servers and, behind them, of workers that serve too.
Numbers MixedShares(const Numbers& workers, const Numbers& servers) {
  const uint64_t n = workers.size();
  const uint64_t slowest = *std::min_element(workers.begin(), workers.end());
  // The time of a model of size 1 is num / den: until all is summed, and at
  // least until the slowest worker has sent its gradients.
  Wide num = Wide{2} * n * (n - 1);
  Wide den = Wide{n} * Sum(workers) + Wide{n - 2} * Sum(servers);
  const bool slack = num * slowest <= den;
  if (slack) {
    num = 1;
    den = slowest;
  }
  Numbers shares;
  for (uint64_t b : servers) {
    shares.push_back(static_cast<uint64_t>(kWholeModel * b * num / (den * n)));
  }
  if (Sum(shares) >= kWholeModel) {
    shares = Divided(kWholeModel, servers);
    shares.resize(servers.size() + n);
    return shares;
  }
  const uint64_t rest = kWholeModel - Sum(shares);
  Numbers weights;
  for (uint64_t b : workers) {
    // Of two workers each sends M, whatever it sums.
    weights.push_back(
        n == 2 ? b
               : static_cast<uint64_t>((b * num - den) * kWholeModel / den));
  }
  for (uint64_t share : Divided(rest, weights)) shares.push_back(share);
  return shares;
}

}  // namespace

std::vector<uint64_t> SharesOf(const Config& config) {
  const size_t n = config.workers.size();
  const size_t k = config.servers.size();
  const Numbers workers = Bandwidths(config, 0, n);
  const Numbers servers = Bandwidths(config, n, k);
  Numbers shares;
  if (!config.workers_serve()) {
    shares = Divided(kWholeModel, servers);
  } else if (n == 1) {
    shares.assign(k + 1, 0);
    shares.back() = kWholeModel;
  } else {
    shares = MixedShares(workers, servers);
  }
  // What rounding has left over.
  *std::max_element(shares.begin(), shares.end()) += kWholeModel - Sum(shares);
  return shares;
}

}  // namespace byteps

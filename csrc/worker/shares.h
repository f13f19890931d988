// How much of a model each server sums, so that the slowest link is done as
// early as any placement allows. Pure; integers, so that every process has the
// same answer to the last bit.
#ifndef BYTEPS_WORKER_SHARES_H_
#define BYTEPS_WORKER_SHARES_H_

#include <cstdint>
#include <vector>

#include "csrc/base/config.h"

namespace byteps {

// The sum of all shares.
constexpr uint64_t kWholeModel = uint64_t{1} << 24;

// By server. A worker's host that sums x of M bytes sends and receives
// M + (n - 2) x, a host with a dedicated server n y; the largest of these,
// divided by the host's bandwidth, is least. With equal bandwidths that is
//   x = (n - k) M / (n^2 + kn - 2k),   y = 2 (n - 1) M / (n^2 + kn - 2k)
// for n workers and k dedicated servers (Jiang et al., OSDI 2020). Where
// several answers are as fast, dedicated servers sum what they can.
std::vector<uint64_t> SharesOf(const Config& config);

}  // namespace byteps

#endif  // BYTEPS_WORKER_SHARES_H_

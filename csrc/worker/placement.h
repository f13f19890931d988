// Which server sums a key. Pure; the same answer on every process.
#ifndef BYTEPS_WORKER_PLACEMENT_H_
#define BYTEPS_WORKER_PLACEMENT_H_

#include <cstdint>

#include "csrc/wire/header.h"

namespace byteps {

class Placement {
 public:
  explicit Placement(uint32_t num_servers) : num_servers_(num_servers) {}

  // The partitions of a tensor go round the servers, from a start that depends
  // on its name, so that small tensors spread as well. A tensor's first
  // partition stays where it is whatever the shape: workers that disagree on
  // the shape meet there.
  uint32_t ServerOf(const Key& key) const {
    return static_cast<uint32_t>((key.tensor + key.partition) % num_servers_);
  }

 private:
  const uint32_t num_servers_;
};

}  // namespace byteps

#endif  // BYTEPS_WORKER_PLACEMENT_H_

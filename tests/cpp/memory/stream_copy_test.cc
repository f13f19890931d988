#include "csrc/memory/stream_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace byteps {
namespace {

TEST(StreamCopy, CopiesAllOfItAndNothingElse) {
  std::vector<uint8_t> from(100'000);
  for (size_t i = 0; i < from.size(); ++i) {
    from[i] = static_cast<uint8_t>(i * 7 + 1);
  }
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{4096}, size_t{16 << 10},
                       size_t{(16 << 10) + 63}, size_t{65537}}) {
    for (size_t skip_to : {0, 1, 16, 63}) {
      for (size_t skip_from : {0, 3, 64}) {
        std::vector<uint8_t> to(bytes + 200, 0);
        StreamCopy(to.data() + 64 + skip_to, from.data() + skip_from, bytes);
        std::vector<uint8_t> expected(bytes + 200, 0);
        std::copy_n(from.begin() + static_cast<int64_t>(skip_from), bytes,
                    expected.begin() + static_cast<int64_t>(64 + skip_to));
        ASSERT_EQ(to, expected) << bytes << " " << skip_to << " " << skip_from;
      }
    }
  }
}

}  // namespace
}  // namespace byteps

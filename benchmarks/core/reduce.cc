// The summation kernel against memcpy: one core, out of cache, in turns.
//
//   bench_reduce ROUNDS
//
// Prints a line a round: seconds of memcpy and of sums of float32, float16 and
// bfloat16, of as many elements each (memcpy's have 4 bytes).
#include "csrc/reduce/reduce.h"

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

namespace byteps {
namespace {

constexpr size_t kCount = 32 << 20;  // elements; 128 MiB of float32

double Seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

void StayOnOneCore() {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(sched_getcpu(), &set);
  sched_setaffinity(0, sizeof(set), &set);
}

int Main(int rounds) {
  StayOnOneCore();
  std::vector<float> sum(kCount), input(kCount, 1.0f);
  const std::vector<uint16_t> half(kCount, 0x3c00);
  const auto add = [&](DType dtype, const void* from) {
    return Seconds(
        [&] { Accumulate(Operation::kSum, dtype, sum.data(), from, kCount); });
  };
  for (int i = -1; i < rounds; ++i) {
    const double copy = Seconds(
        [&] { std::memcpy(sum.data(), input.data(), kCount * sizeof(float)); });
    const double float32 = add(DType::kFloat32, input.data());
    const double float16 = add(DType::kFloat16, half.data());
    const double bfloat16 = add(DType::kBFloat16, half.data());
    if (i < 0) continue;  // memory is touched for the first time
    std::cout << copy << " " << float32 << " " << float16 << " " << bfloat16
              << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace byteps

int main(int argc, char** argv) {
  return argc == 2 ? byteps::Main(std::stoi(argv[1])) : 2;
}

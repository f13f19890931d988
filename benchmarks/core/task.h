// What a worker of a benchmark is asked to do, line by line on standard input:
// "STEPS SIZES ...", with the bytes of each float32 tensor and commas between
// them. It answers "done" when the steps are done.
#ifndef BYTEPS_BENCHMARKS_CORE_TASK_H_
#define BYTEPS_BENCHMARKS_CORE_TASK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace byteps {

inline std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

struct Tensors {
  uint64_t generation;  // the same on all workers
  std::vector<std::vector<float>> inputs;
  std::vector<std::vector<float>> outputs;

  Tensors(uint64_t number, const std::string& sizes, uint32_t rank)
      : generation(number) {
    for (const std::string& bytes : Split(sizes)) {
      const size_t count = std::stoull(bytes) / sizeof(float);
      inputs.emplace_back(count);
      outputs.emplace_back(count);
      for (size_t i = 0; i < count; ++i) inputs.back()[i] = Value(i, rank);
    }
  }

  bool Summed(uint32_t workers) const {
    const uint32_t ranks = workers * (workers - 1) / 2;
    for (const std::vector<float>& output : outputs) {
      for (size_t i = 0; i < output.size(); ++i) {
        if (output[i] != workers * Value(i, 0) + ranks) return false;
      }
    }
    return true;
  }

 private:
  // Small integers, so that sums are exact.
  static float Value(size_t position, uint32_t rank) {
    return static_cast<float>(position % 1021 + rank);
  }
};

// Runs `step` as often as it is asked for, until the input ends. Returns the
// exit status. The sums of new tensors are checked once; `workers` of 0 checks
// nothing.
inline int Serve(uint32_t rank, uint32_t workers,
                 const std::function<bool(Tensors*)>& step) {
  std::cout << "ready" << std::endl;
  Tensors tensors(0, "", rank);
  std::string line, last;
  while (std::getline(std::cin, line)) {
    std::stringstream in(line);
    int steps = 0;
    std::string sizes;
    in >> steps >> sizes;
    const bool fresh = sizes != last;
    if (fresh) {
      tensors = Tensors(tensors.generation + 1, sizes, rank);
      last = sizes;
    }
    for (int i = 0; i < steps; ++i) {
      if (!step(&tensors)) return 1;
      if (i == 0 && fresh && workers > 0 && !tensors.Summed(workers)) {
        std::cerr << "wrong sums" << std::endl;
        return 1;
      }
    }
    std::cout << "done" << std::endl;
  }
  return 0;
}

}  // namespace byteps

#endif  // BYTEPS_BENCHMARKS_CORE_TASK_H_

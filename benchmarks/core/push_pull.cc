// A process of a job on the core, without TensorFlow.
//
//   bench_push_pull worker|server INDEX WORKERS SERVERS [NAME=VALUE...]
//
// WORKERS and SERVERS are addresses with commas between them; the settings are
// mixed, one_host, partition_bytes, credit_bytes, shared_memory and rebalance.
#include <condition_variable>
#include <cstdint>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/core/task.h"
#include "csrc/runtime/runtime.h"
#include "csrc/worker/placement.h"
#include "csrc/worker/shares.h"

namespace byteps {
namespace {

constexpr int64_t kServerCheckMs = 60000;

bool Set(const std::string& setting, Config* config) {
  const size_t equals = setting.find('=');
  if (equals == std::string::npos) return false;
  const std::string name = setting.substr(0, equals);
  const uint64_t value = std::stoull(setting.substr(equals + 1));
  if (name == "mixed") {
    config->mixed = value != 0;
  } else if (name == "one_host") {
    config->one_host = value != 0;
  } else if (name == "partition_bytes") {
    config->partition_bytes = value;
  } else if (name == "credit_bytes") {
    config->credit_bytes = value;
  } else if (name == "shared_memory") {
    config->shared_memory = value != 0;
  } else if (name == "rebalance") {
    config->rebalance = value != 0;
  } else {
    return false;
  }
  return true;
}

int Fail(const Status& why) {
  std::cerr << why.message() << std::endl;
  return 1;
}

int Sum(Runtime* runtime) {
  while (true) {
    const Result<bool> finished = runtime->WaitUntilFinished(kServerCheckMs);
    if (!finished.ok()) return Fail(finished.status());
    if (finished.value()) return 0;
  }
}

// Pushes and pulls sets of tensors as one step of a training does: planned
// together, all at once, the first most urgent.
class Worker {
 public:
  explicit Worker(Runtime* runtime) : runtime_(runtime) {}

  bool Step(Tensors* tensors) {
    if (planned_ != tensors->generation) Plan(*tensors);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      left_ = plans_.size();
    }
    for (size_t i = 0; i < plans_.size(); ++i) {
      PushPullRequest request;
      request.name = names_[i];
      request.shape = {static_cast<int64_t>(tensors->inputs[i].size())};
      request.priority = -static_cast<int64_t>(i);
      request.plan = plans_[i];
      request.input = tensors->inputs[i].data();
      request.output = tensors->outputs[i].data();
      runtime_->PushPull(std::move(request),
                         [this](const Status& status) { Done(status); });
    }
    std::unique_lock<std::mutex> lock(mutex_);
    // Every callback comes, for the runtime knows when a process is lost.
    done_.wait(lock, [this] { return left_ == 0; });
    if (!status_.ok()) std::cerr << status_.message() << std::endl;
    return status_.ok();
  }

 private:
  void Plan(const Tensors& tensors) {
    std::vector<PlannedTensor> together;
    names_.clear();
    plans_.clear();
    for (size_t i = 0; i < tensors.inputs.size(); ++i) {
      names_.push_back("set " + std::to_string(tensors.generation) +
                       " tensor " + std::to_string(i));
      together.push_back({names_.back(),
                          tensors.inputs[i].size() * sizeof(float),
                          sizeof(float)});
    }
    const Config& config = runtime_->config();
    const Placement placement(SharesOf(config), config.partition_bytes,
                              config.one_host);
    for (TensorPlan& plan : placement.PlanTogether(together).tensors) {
      plans_.push_back(std::make_shared<const TensorPlan>(std::move(plan)));
    }
    planned_ = tensors.generation;
  }

  void Done(const Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!status.ok()) status_ = status;
    if (--left_ == 0) done_.notify_one();
  }

  Runtime* const runtime_;
  uint64_t planned_ = 0;  // generation
  std::vector<std::string> names_;
  std::vector<std::shared_ptr<const TensorPlan>> plans_;
  std::mutex mutex_;
  std::condition_variable done_;
  size_t left_ = 0;  // guarded by mutex_
  Status status_;    // guarded by mutex_
};

int Main(const std::vector<std::string>& arguments) {
  if (arguments.size() < 4) return 2;
  Config config;
  config.self.role = arguments[0] == "worker" ? Role::kWorker : Role::kServer;
  config.self.index = static_cast<uint32_t>(std::stoul(arguments[1]));
  config.workers = Split(arguments[2]);
  config.servers = Split(arguments[3]);
  config.job_token = config.cluster_digest = "benchmark";
  for (size_t i = 4; i < arguments.size(); ++i) {
    if (!Set(arguments[i], &config)) return 2;
  }
  const auto runtime = Runtime::Start(config);
  if (!runtime.ok()) return Fail(runtime.status());
  if (!config.is_worker()) return Sum(runtime.value().get());
  Worker worker(runtime.value().get());
  return Serve(config.self.index, config.num_workers(),
               [&worker](Tensors* tensors) { return worker.Step(tensors); });
}

}  // namespace
}  // namespace byteps

int main(int argc, char** argv) {
  return byteps::Main({argv + 1, argv + argc});
}

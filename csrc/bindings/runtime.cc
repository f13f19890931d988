#include "csrc/runtime/runtime.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/log.h"
#include "csrc/bindings/status_error.h"
#include "csrc/runtime/current_runtime.h"

namespace byteps {
namespace {

namespace py = pybind11;

// How often a wait looks whether Ctrl-C was pressed.
constexpr std::chrono::milliseconds kCheckInterval(100);

LogLevel ToLogLevel(const std::string& level) {
  if (level == "debug") return LogLevel::kDebug;
  if (level == "info") return LogLevel::kInfo;
  if (level == "error") return LogLevel::kError;
  return LogLevel::kWarning;
}

Config ToConfig(const py::dict& options) {
  Config config;
  config.self.role = options["role"].cast<std::string>() == "server"
                         ? Role::kServer
                         : Role::kWorker;
  config.self.index = options["index"].cast<uint32_t>();
  config.workers = options["workers"].cast<std::vector<std::string>>();
  config.servers = options["servers"].cast<std::vector<std::string>>();
  config.mixed = options["mixed"].cast<bool>();
  config.one_host = options["one_host"].cast<bool>();
  config.bandwidths = options["bandwidths"].cast<std::vector<double>>();
  config.job_token = options["job_token"].cast<std::string>();
  config.cluster_digest = options["cluster_digest"].cast<std::string>();
  config.partition_bytes = options["partition_bytes"].cast<uint64_t>();
  config.credit_bytes = options["credit_bytes"].cast<uint64_t>();
  config.failure_timeout_ms = options["failure_timeout_ms"].cast<int64_t>();
  config.start_timeout_ms = options["start_timeout_ms"].cast<int64_t>();
  config.stall_warning_ms = options["stall_warning_ms"].cast<int64_t>();
  config.stall_limit_ms = options["stall_limit_ms"].cast<int64_t>();
  config.reduce_threads = options["reduce_threads"].cast<int>();
  config.timeline = options["timeline"].cast<std::string>();
  config.shared_memory = options["shared_memory"].cast<bool>();
  config.rebalance = options["rebalance"].cast<bool>();
  return config;
}

std::shared_ptr<Runtime> Start(const py::dict& options) {
  const Config config = ToConfig(options);
  ConfigureLog(ToLogLevel(options["log_level"].cast<std::string>()),
               ToString(config.self));
  LogInfo("settings: " + options["settings"].cast<std::string>());
  // Ctrl-C ends the wait for others too.
  bool interrupted = false;
  Result<std::shared_ptr<Runtime>> runtime = [&config, &interrupted] {
    py::gil_scoped_release released;
    return Runtime::Start(config, [&interrupted] {
      py::gil_scoped_acquire acquired;
      if (PyErr_CheckSignals() == 0) return OkStatus();
      interrupted = true;
      return Cancelled("interrupted during the start");
    });
  }();
  if (interrupted) throw py::error_already_set();
  if (!runtime.ok()) Raise(runtime.status());
  SetCurrentRuntime(runtime.value());
  return runtime.value();
}

uint32_t Join(Runtime& runtime) {
  // Shared, since the answer may come after Ctrl-C has ended the wait.
  auto promise = std::make_shared<std::promise<Result<uint32_t>>>();
  std::future<Result<uint32_t>> future = promise->get_future();
  bool interrupted = false;
  {
    py::gil_scoped_release released;
    runtime.Join([promise](Result<uint32_t> last_rank) {
      promise->set_value(std::move(last_rank));
    });
    while (!interrupted &&
           future.wait_for(kCheckInterval) != std::future_status::ready) {
      py::gil_scoped_acquire acquired;
      interrupted = PyErr_CheckSignals() != 0;
    }
  }
  if (interrupted) throw py::error_already_set();
  const Result<uint32_t> last_rank = future.get();
  if (!last_rank.ok()) Raise(last_rank.status());
  return last_rank.value();
}

bool WaitUntilFinished(Runtime& runtime, int64_t timeout_ms) {
  Result<bool> finished = [&runtime, timeout_ms] {
    py::gil_scoped_release released;
    return runtime.WaitUntilFinished(timeout_ms);
  }();
  if (!finished.ok()) Raise(finished.status());
  return finished.value();
}

void StartTimeline(Runtime& runtime, const std::string& directory) {
  const Status status = [&runtime, &directory] {
    py::gil_scoped_release released;
    return runtime.StartTimeline(directory);
  }();
  if (!status.ok()) Raise(status);
}

void StopTimeline(Runtime& runtime) {
  py::gil_scoped_release released;
  runtime.StopTimeline();
}

void Close(Runtime& runtime) {
  py::gil_scoped_release released;
  runtime.Close();
  SetCurrentRuntime(nullptr);
}

// What this process pushed and summed so far, for tests and reports.
py::dict Counters(const Runtime& runtime) {
  py::dict counters;
  counters["bytes_shared"] = runtime.bytes_shared();
  if (runtime.client() != nullptr) {
    const WorkerCounters worker = runtime.client()->counters();
    counters["tensors"] = runtime.client()->num_tensors();
    counters["pushes"] = worker.pushes;
    counters["results"] = worker.results;
    counters["bytes_pushed"] = worker.bytes_pushed;
    counters["bytes_pulled"] = worker.bytes_pulled;
    counters["rebalances"] = worker.rebalances;
  }
  if (runtime.server() != nullptr) {
    const ServerCounters server = runtime.server()->counters();
    counters["server_pushes"] = server.pushes;
    counters["server_results"] = server.results;
    counters["server_bytes_summed"] = server.bytes_summed;
  }
  return counters;
}

}  // namespace

void BindRuntime(py::module_& module) {
  py::class_<Runtime, std::shared_ptr<Runtime>>(module, "Runtime")
      .def_static("start", &Start, py::arg("options"))
      .def("join", &Join)
      .def("wait_until_finished", &WaitUntilFinished, py::arg("timeout_ms"))
      .def("failure",
           [](const Runtime& runtime) {
             const Status status = runtime.failure();
             return py::make_tuple(static_cast<int>(status.code()),
                                   status.message());
           })
      .def("counters", &Counters)
      .def("start_timeline", &StartTimeline, py::arg("directory"))
      .def("stop_timeline", &StopTimeline)
      .def("label", &Runtime::Label, py::arg("name"), py::arg("label"))
      // For tests: what a worker does that finds a server slow.
      .def("propose", &Runtime::Propose, py::arg("shares"),
           py::call_guard<py::gil_scoped_release>())
      .def("close", &Close);
}

}  // namespace byteps

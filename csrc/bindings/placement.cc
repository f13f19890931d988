#include "csrc/worker/placement.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "csrc/base/config.h"
#include "csrc/worker/shares.h"

namespace byteps {
namespace {

namespace py = pybind11;

// Name, bytes, bytes of an element.
using TensorTuple = std::tuple<std::string, uint64_t, size_t>;

// Each tensor's plan, for its operation, and the bytes that each server sums.
py::tuple PlanTogether(size_t workers, size_t servers, bool mixed,
                       const std::vector<double>& bandwidths,
                       uint64_t partition_bytes, bool one_host,
                       const std::vector<TensorTuple>& tensors) {
  Config config;
  config.workers.resize(workers);
  config.servers.resize(servers);
  config.mixed = mixed;
  config.bandwidths = bandwidths;
  std::vector<PlannedTensor> planned;
  for (const auto& [name, bytes, element_bytes] : tensors) {
    planned.push_back({name, bytes, element_bytes});
  }
  const Placement placement(SharesOf(config), partition_bytes, one_host);
  const Plan plan = placement.PlanTogether(planned);
  std::vector<py::bytes> encoded;
  for (const TensorPlan& tensor : plan.tensors) {
    encoded.emplace_back(Encode(tensor));
  }
  return py::make_tuple(encoded, plan.bytes);
}

}  // namespace

void BindPlacement(py::module_& module) {
  module.def("plan_together", &PlanTogether, py::arg("workers"),
             py::arg("servers"), py::arg("mixed"), py::arg("bandwidths"),
             py::arg("partition_bytes"), py::arg("one_host"),
             py::arg("tensors"));
}

}  // namespace byteps

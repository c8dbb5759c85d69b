// The Python class GradientPool: memory in which gradients are reduced in place.
#include "adapter/gradient_pool.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bindings/bound_pool.h"
#include "bindings/errors.h"
#include "bindings/gil.h"
#include "bindings/global_state.h"
#include "bindings/submission.h"
#include "bindings/topics.h"

namespace roundelay::bindings {
namespace {

using Results = std::optional<std::pair<at::ScalarType, std::size_t>>;  // type and bytes of a result memory

// Makes the result memory of a pool. Only this process has access to it.
Result<RegionPtr> make_results(runtime::Context& context, std::uint64_t key, std::size_t bytes,
                               ProcessSetId process_set, const c10::Device& device) {
  if (device.is_cpu()) return make_private_region(key, bytes);
  return context.make_region(process_set, key, bytes, device.index());
}

std::unique_ptr<BoundPool> make_pool(std::uint64_t key, std::size_t bytes, ProcessSetId process_set,
                                     const c10::Device& device, const Results& results) {
  const auto context = global_context();
  Result<RegionPtr> region = Status::internal("");
  Result<RegionPtr> second = RegionPtr();
  {
    const GilReleased release;
    region = context->make_region(process_set, key, bytes, device.is_cpu() ? -1 : device.index());
    if (results) second = make_results(*context, key, results->second, process_set, device);
  }
  std::optional<adapter::ResultMemory> memory;
  if (results) memory = {value_of(std::move(second)), results->first};
  return std::make_unique<BoundPool>(
      BoundPool{adapter::GradientPool(value_of(std::move(region)), device, global_accelerator(), memory),
                process_set, context});
}

// python/roundelay/torch/measure.py says what they count.
std::map<std::string, std::int64_t> counters_of(const BoundPool& pool) {
  return {{"gradients_moved_out", pool.pool.moved_out()},
          {"gradients_copied", pool.pool.copied()},
          {"buckets_cast_back", pool.pool.cast_back()}};
}

}  // namespace

submit::Handle allreduce(BoundPool& pool, const adapter::PoolRange& range, const std::string& name,
                         const Reduction& reduction, const adapter::TechniqueUse& technique) {
  wire::Request request = request_of(Operation::kAllreduce, name);
  set_reduction(request, reduction.op, reduction.prescale_factor, reduction.postscale_factor,
                pool.process_set);
  request.region = {pool.pool.region().key, range.offset};
  request.technique = technique.text;
  const bool stale = pool.context.lock() != global_context();
  return submit(stale ? Status::invalid("this gradient pool was made before the last init()")
                      : pool.pool.operand(range, reduction.cast_back),
                std::move(request), {pool.process_set, false}, {}, technique.technique);
}

void bind_gradient_pool(py::module_& module) {
  py::class_<BoundPool>(module, "GradientPool")
      .def(py::init(&make_pool), py::arg("key"), py::arg("size"), py::arg("process_set"), py::arg("device"),
           py::arg("results") = py::none())
      .def(
          "add",
          [](BoundPool& self, std::size_t offset, const at::Tensor& parameter, at::ScalarType type) {
            return value_of(self.pool.add(offset, parameter, type));
          },
          py::arg("offset"), py::arg("parameter"), py::arg("dtype"))
      .def("clear", [](BoundPool& self) { self.pool.clear(); })
      .def_property_readonly("counters", &counters_of)
      .def(
          "fill",
          [](BoundPool& self, std::size_t entry, const std::optional<at::Tensor>& gradient) {
            return value_of(self.pool.fill(entry, gradient.value_or(at::Tensor())));
          },
          py::arg("entry"), py::arg("gradient"))
      .def("trim", [](const BoundPool& self) { self.pool.trim(); })
      .def("record_event", [](BoundPool& self) { check(self.pool.record_event()); })
      .def("take_turns", [](BoundPool& self) { return self.pool.take_turns(); })
      .def(
          "allreduce_async",
          [](BoundPool& self, std::size_t size, at::ScalarType type, const std::string& name, int op) {
            return allreduce(self, {0, size, type}, name, {op, 1.0, 1.0, false}, {});
          },
          py::arg("size"), py::arg("dtype"), py::arg("name"), py::arg("op"));
}

}  // namespace roundelay::bindings

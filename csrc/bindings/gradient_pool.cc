// The Python class GradientPool: memory in which gradients are reduced in place.
#include "gradients/pool.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bindings/errors.h"
#include "bindings/topics.h"

namespace roundelay::bindings {
namespace {

using gradients::GradientPool;

std::shared_ptr<GradientPool> make_pool(std::uint64_t key, std::size_t bytes, ProcessSetId process_set,
                                        const c10::Device& device,
                                        const std::optional<GradientPool::ResultSize>& results) {
  return value_of(GradientPool::make(key, bytes, process_set, device, results));
}

// python/roundelay/torch/_internal/measure.py says what they count.
std::map<std::string, std::int64_t> counters_of(const GradientPool& pool) {
  return {{"gradients_moved_out", pool.moved_out()},
          {"gradients_copied", pool.copied()},
          {"buckets_cast_back", pool.cast_back()}};
}

}  // namespace

void bind_gradient_pool(py::module_& module) {
  py::class_<GradientPool, std::shared_ptr<GradientPool>>(module, "GradientPool")
      .def(py::init(&make_pool), py::arg("key"), py::arg("size"), py::arg("process_set"), py::arg("device"),
           py::arg("results") = py::none())
      .def(
          "add",
          [](GradientPool& self, std::size_t offset, const at::Tensor& parameter, at::ScalarType type) {
            return value_of(self.add(offset, parameter, type));
          },
          py::arg("offset"), py::arg("parameter"), py::arg("dtype"))
      .def(
          "place",
          [](const GradientPool& self, std::size_t entry) {
            const gradients::PoolRange range = self.range(entry);
            return std::pair(range.offset, range.offset + range.bytes);
          },
          py::arg("entry"))
      .def("clear", &GradientPool::clear)
      .def_property_readonly("counters", &counters_of)
      .def(
          "fill",
          [](GradientPool& self, std::size_t entry, const std::optional<at::Tensor>& gradient) {
            return value_of(self.fill(entry, gradient.value_or(at::Tensor())));
          },
          py::arg("entry"), py::arg("gradient"))
      .def("trim", &GradientPool::trim)
      .def("take_submissions", &GradientPool::take_submissions)
      .def(
          "allreduce_async",
          [](const GradientPool& self, std::size_t size, at::ScalarType type, const std::string& name,
             int op) {
            return value_of(self.allreduce({0, size, type}, name, {op, 1.0, 1.0}, false, {}));
          },
          py::arg("size"), py::arg("dtype"), py::arg("name"), py::arg("op"));
}

}  // namespace roundelay::bindings

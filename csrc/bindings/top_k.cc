// The Python function that selects values by their magnitudes.
#include <ATen/ops/empty.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <span>
#include <utility>

#include "bindings/topics.h"
#include "kernels/top_k.h"

namespace roundelay::bindings {
namespace {

std::pair<at::Tensor, at::Tensor> top_k(const at::Tensor& values, std::int64_t k, bool exact, int samplings,
                                        std::uint64_t seed) {
  if (!values.is_cpu() || values.scalar_type() != at::kFloat || !values.is_contiguous())
    throw py::value_error("values must be contiguous fp32 numbers on the CPU");
  if (k < 0 || k > values.numel() || samplings < 1) throw py::value_error("k or samplings are out of range");
  at::Tensor chosen = at::empty({k}, values.options());
  at::Tensor indices = at::empty({k}, values.options().dtype(at::kLong));
  const auto how = exact ? kernels::Selection::kRadix : kernels::Selection::kMsTopK;
  const auto places = static_cast<std::size_t>(k);
  const py::gil_scoped_release released;
  kernels::top_k(std::span(values.const_data_ptr<float>(), static_cast<std::size_t>(values.numel())),
                 {how, samplings, seed}, std::span(chosen.mutable_data_ptr<float>(), places),
                 std::span(indices.mutable_data_ptr<std::int64_t>(), places));
  return {std::move(chosen), std::move(indices)};
}

}  // namespace

void bind_top_k(py::module_& module) {
  module.def("top_k", top_k, py::arg("values"), py::arg("k"), py::arg("exact"), py::arg("samplings"),
             py::arg("seed"));
}

}  // namespace roundelay::bindings

// The Python function that selects values by their magnitudes, on the CPU or on a GPU.
#include <torch/csrc/utils/pybind.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "adapter/process.h"
#include "bindings/errors.h"
#include "bindings/global_state.h"
#include "bindings/topics.h"
#include "kernels/top_k.h"

namespace roundelay::bindings {
namespace {

// Selects on the device of the values, in its current stream. The host does not wait for a GPU.
Status select(const at::Tensor& values, const kernels::TopKRule& rule, at::Tensor& chosen,
              at::Tensor& indices) {
  const auto stream = adapter::accelerator().stream_for(values.device(), "mstopk: the tensor");
  if (!stream.ok()) return stream.status();
  if (chosen.numel() == 0) return {};
  const std::span from(values.const_data_ptr<float>(), static_cast<std::size_t>(values.numel()));
  const std::span to(chosen.mutable_data_ptr<float>(), static_cast<std::size_t>(chosen.numel()));
  const std::span places(indices.mutable_data_ptr<std::int64_t>(), to.size());
  if (!stream->has_value()) {
    kernels::top_k(from, rule, to, places);
    return {};
  }
  const adapter::CallerStream& caller = **stream;
  kernels::GpuKernels& kernels = *adapter::accelerator().kernels();
  const auto bytes = static_cast<std::int64_t>(kernels.top_k_scratch(from.size()));
  const at::Tensor scratch = caller.allocate({bytes}, at::kByte);
  return kernels.top_k(caller.device_index(), from, rule, to, places,
                       static_cast<std::byte*>(scratch.mutable_data_ptr()), caller.native());
}

std::pair<at::Tensor, at::Tensor> top_k(const at::Tensor& values, std::int64_t k, bool exact, int samplings,
                                        std::uint64_t seed) {
  if (values.scalar_type() != at::kFloat || !values.is_contiguous())
    throw py::value_error("values must be contiguous fp32 numbers");
  if (k < 0 || k > values.numel() || samplings < 1) throw py::value_error("k or samplings are out of range");
  at::Tensor chosen = values.new_empty({k});
  at::Tensor indices = values.new_empty({k}, values.options().dtype(at::kLong));
  const auto how = exact ? kernels::Selection::kRadix : kernels::Selection::kMsTopK;
  Status status;
  {
    const py::gil_scoped_release released;
    status = select(values, {how, samplings, seed}, chosen, indices);
  }
  check(status);
  return {std::move(chosen), std::move(indices)};
}

}  // namespace

void bind_top_k(py::module_& module) {
  module.def("top_k", top_k, py::arg("values"), py::arg("k"), py::arg("exact"), py::arg("samplings"),
             py::arg("seed"));
}

}  // namespace roundelay::bindings

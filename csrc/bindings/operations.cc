// The Python functions that submit operations.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapter/operand.h"
#include "adapter/process.h"
#include "adapter/submission.h"
#include "adapter/waiting.h"
#include "bindings/errors.h"
#include "bindings/global_state.h"
#include "bindings/topics.h"

namespace roundelay::bindings {
namespace {

using adapter::Operand;
using adapter::request_of;
using adapter::Route;
using Handle = Result<complete::Handle>;
using Name = std::optional<std::string>;  // nothing: the core makes up a name
using Tensors = std::vector<at::Tensor>;

Handle grouped_allreduce(Route route, const Tensors& tensors, const Tensors& outputs, const Name& name,
                         int op, double prescale_factor, double postscale_factor) {
  auto request = request_of(Operation::kAllreduce, name.value_or(""), {op, prescale_factor, postscale_factor},
                            route.process_set);
  if (!request.ok()) return request.status();
  auto operand = Operand::make(tensors, outputs, request->name, adapter::accelerator());
  return adapter::submit(std::move(operand), *std::move(request), route);
}

Handle allreduce(Route route, const at::Tensor& tensor, const at::Tensor& output, const Name& name, int op,
                 double prescale_factor, double postscale_factor) {
  return grouped_allreduce(route, {tensor}, {output}, name, op, prescale_factor, postscale_factor);
}

Handle broadcast(Route route, const at::Tensor& tensor, const at::Tensor& output, int root,
                 const Name& name) {
  wire::Request request = request_of(Operation::kBroadcast, name.value_or(""));
  request.root = root;
  auto operand = Operand::make({tensor}, {output}, request.name, adapter::accelerator());
  return adapter::submit(std::move(operand), std::move(request), route);
}

Handle barrier(Route route) {
  return adapter::submit(Operand::make({}, "", adapter::accelerator()), request_of(Operation::kBarrier, ""),
                         route);
}

Handle allgather(Route route, const Tensors& tensors, const Name& name) {
  wire::Request request = request_of(Operation::kAllgather, name.value_or(""));
  auto operand = Operand::make(tensors, request.name, adapter::accelerator());
  return adapter::submit(std::move(operand), std::move(request), route);
}

Handle alltoall(Route route, const at::Tensor& tensor, std::vector<std::int64_t> splits, const Name& name) {
  wire::Request request = request_of(Operation::kAlltoall, name.value_or(""));
  auto operand = Operand::make({tensor}, request.name, adapter::accelerator());
  return adapter::submit(std::move(operand), std::move(request), route, std::move(splits));
}

Handle reducescatter(Route route, const Tensors& tensors, const Name& name, int op, double prescale_factor,
                     double postscale_factor) {
  auto request = request_of(Operation::kReducescatter, name.value_or(""),
                            {op, prescale_factor, postscale_factor}, route.process_set);
  if (!request.ok()) return request.status();
  auto operand = Operand::make(tensors, request->name, adapter::accelerator());
  return adapter::submit(std::move(operand), *std::move(request), route);
}

Handle join(Route route) {
  return adapter::submit(Operand::make_number(), request_of(Operation::kJoin, ""), route);
}

void submit_error(const std::string& operation, const Name& name, const std::string& text,
                  ProcessSetId process_set) {
  for (int i = 0; i < kOperationCount; ++i) {
    if (name_of(static_cast<Operation>(i)) != operation) continue;
    wire::Request request = request_of(static_cast<Operation>(i), name.value_or(""));
    request.error = text;
    global_context()->submit_error(process_set, std::move(request));
    return;
  }
  throw py::value_error("there is no operation '" + operation + "'");
}

// Defines two Python functions: "<name>_async" returns a handle, "<name>" waits at once. In the second one no
// Python code runs between submitting and waiting: a signal handler that raises could lose the handle.
template <typename... Arguments, typename... Names>
void define(py::module_& module, const std::string& name, Handle (*start)(Route, Arguments...),
            const Names&... names) {
  module.def((name + "_async").c_str(),
             [start](Arguments... arguments, ProcessSetId process_set) {
               return value_of(start({process_set, false}, std::forward<Arguments>(arguments)...));
             },
             names..., py::arg("process_set"));
  module.def(
      name.c_str(),
      [start](Arguments... arguments, ProcessSetId process_set) {
        const complete::Handle handle =
            value_of(start({process_set, true}, std::forward<Arguments>(arguments)...));
        return value_of(adapter::synchronize(handle));
      },
      names..., py::arg("process_set"));
}

}  // namespace

void bind_operations(py::module_& module) {
  define(module, "allreduce", allreduce, py::arg("tensor"), py::arg("output"), py::arg("name"), py::arg("op"),
         py::arg("prescale_factor"), py::arg("postscale_factor"));
  define(module, "grouped_allreduce", grouped_allreduce, py::arg("tensors"), py::arg("outputs"),
         py::arg("name"), py::arg("op"), py::arg("prescale_factor"), py::arg("postscale_factor"));
  define(module, "broadcast", broadcast, py::arg("tensor"), py::arg("output"), py::arg("root"),
         py::arg("name"));
  define(module, "barrier", barrier);
  define(module, "allgather", allgather, py::arg("tensors"), py::arg("name"));
  define(module, "alltoall", alltoall, py::arg("tensor"), py::arg("splits"), py::arg("name"));
  define(module, "reducescatter", reducescatter, py::arg("tensors"), py::arg("name"), py::arg("op"),
         py::arg("prescale_factor"), py::arg("postscale_factor"));
  define(module, "join", join);
  module.def("submit_error", submit_error, py::arg("operation"), py::arg("name"), py::arg("text"),
             py::arg("process_set"));
}

}  // namespace roundelay::bindings

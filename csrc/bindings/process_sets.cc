// The Python functions that make and remove process sets. All ranks first agree, which signals may interrupt.
#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "adapter/gil.h"
#include "adapter/waiting.h"
#include "bindings/errors.h"
#include "bindings/global_state.h"
#include "bindings/topics.h"

namespace roundelay::bindings {
namespace {

// Waits until all ranks have agreed on the change. If a signal interrupts this rank, all ranks fail at once,
// because the others would go on with the change.
void agree(runtime::Context& context, complete::Handle agreement, const char* call) {
  try {
    check(adapter::wait(context, agreement));
  } catch (const py::error_already_set&) {
    {
      const adapter::GilReleased no_gil;
      context.fail("rank " + std::to_string(context.rank_info().rank) + " was interrupted in " + call);
    }
    throw;
  }
}

ProcessSetId add(const std::vector<int>& ranks) {
  const auto context = global_context();
  agree(*context, value_of(context->submit_new_set(ranks)), "add_process_set()");
  const adapter::GilReleased no_gil;
  return value_of(context->make_process_set(ranks));
}

void remove(ProcessSetId id) {
  const auto context = global_context();
  agree(*context, value_of(context->submit_removal(id)), "remove_process_set()");
  const adapter::GilReleased no_gil;
  check(context->drop_process_set(id));
}

void end_changes() {
  const auto context = global_context();
  agree(*context, value_of(context->submit_no_change()), "the end of adding process sets");
}

}  // namespace

void bind_process_sets(py::module_& module) {
  module.def("add_process_set", add, py::arg("ranks"));
  module.def("remove_process_set", remove, py::arg("process_set"));
  module.def("end_process_set_changes", end_changes);
  module.def(
      "levels",
      [](ProcessSetId id, bool on_gpu) {
        return value_of(global_context()->level_sizes(id, on_gpu ? DeviceType::kGpu : DeviceType::kCpu));
      },
      py::arg("process_set"), py::arg("on_gpu"));
}

}  // namespace roundelay::bindings

#include "timeline/timeline.h"

#include <chrono>
#include <cstdint>
#include <string>

#include "bindings/errors.h"
#include "bindings/global_state.h"
#include "bindings/topics.h"

namespace roundelay::bindings {
namespace {

TimePoint at(std::int64_t nanoseconds) { return TimePoint(Duration(nanoseconds)); }

void start_timeline(const std::string& path, bool mark_cycles) {
  const auto context = global_context();
  Status status;
  {
    const py::gil_scoped_release no_gil;  // the call opens a file
    status = context->start_timeline(path, mark_cycles);
  }
  check(status);
}

void stop_timeline() {
  const auto context = global_context();
  Status status;
  {
    const py::gil_scoped_release no_gil;
    status = context->stop_timeline();
  }
  check(status);
}

void mark(const std::string& name, std::int64_t begin_ns, std::int64_t end_ns) {
  global_context()->timeline().record_span(timeline::Row::kTraining, name, at(begin_ns), at(end_ns));
}

}  // namespace

void bind_timeline(py::module_& module) {
  module.def("start_timeline", start_timeline, py::arg("path"), py::arg("mark_cycles"));
  module.def("stop_timeline", stop_timeline);
  module.def("timeline_enabled", [] { return global_context()->timeline().enabled(); });
  module.def("timeline_mark", mark, py::arg("name"), py::arg("begin_ns"), py::arg("end_ns"));
}

}  // namespace roundelay::bindings

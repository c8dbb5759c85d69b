// The backend of torch.distributed (c10d/backend.h).
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapter/gil.h"
#include "adapter/process.h"
#include "bindings/config.h"
#include "bindings/errors.h"
#include "bindings/secret.h"
#include "bindings/topics.h"
#include "process_group/backend.h"
#include "process_group/errors.h"
#include "process_group/store.h"
#include "process_group/technique_bucket.h"

namespace roundelay::bindings {
namespace {

using process_group::RoundelayBackend;

c10::intrusive_ptr<::c10d::Backend> make_c10d_backend(const c10::intrusive_ptr<::c10d::Store>& store,
                                                      int rank, int size, const std::string& name,
                                                      std::chrono::milliseconds timeout,
                                                      const py::bytes& secret) {
  check(adapter::refuse_in_child());
  LoadedConfig loaded = load_config_from_environment();
  const process_group::GroupSession::Place place{rank, size, name, key_of(secret)};
  const adapter::GilReleased no_gil;
  auto group = process_group::GroupSession::create(std::make_shared<process_group::C10dStore>(store), place,
                                                   std::move(loaded.config));
  if (!group.ok()) throw std::runtime_error(group.status().message());
  return RoundelayBackend::create(std::move(group).value(), timeout);
}

using process_group::TechniqueBucket;

std::unique_ptr<TechniqueBucket> make_technique_bucket(const c10::intrusive_ptr<::c10d::Backend>& group,
                                                       at::ScalarType type,
                                                       const std::vector<std::int64_t>& sizes) {
  auto* const own = dynamic_cast<RoundelayBackend*>(group.get());
  if (own == nullptr) process_group::refuse("the group's backend is not roundelay");
  return std::make_unique<TechniqueBucket>(c10::intrusive_ptr<RoundelayBackend>::reclaim_copy(own), type,
                                           sizes);
}

void bind_technique_bucket(py::module_& module) {
  py::class_<TechniqueBucket>(module, "TechniqueBucket")
      .def(py::init(&make_technique_bucket), py::arg("group"), py::arg("dtype"), py::arg("sizes"))
      .def("choose", &TechniqueBucket::choose, py::arg("text"))
      .def("forget", &TechniqueBucket::forget)
      .def_property_readonly("text", &TechniqueBucket::text)
      .def("average", &TechniqueBucket::average, py::arg("elements"))
      .def("applied", &TechniqueBucket::applied)
      .def("kept",
           [](TechniqueBucket& self) {
             const at::Tensor kept = self.kept();
             return kept.defined() ? std::optional(kept) : std::nullopt;
           })
      .def("rescale", &TechniqueBucket::rescale, py::arg("factor"));
}

}  // namespace

// Lets the exceptions of process groups become these Python classes. Later calls do nothing.
void set_c10d_errors(const py::object& error, const py::object& mismatch) {
  static const auto& kinds = *new std::pair(error, mismatch);
  static const bool registered = [] {
    py::register_exception_translator([](std::exception_ptr thrown) {
      try {
        if (thrown) std::rethrow_exception(thrown);
      } catch (const process_group::MismatchError& caught) {
        PyErr_SetString(kinds.second.ptr(), caught.what_without_backtrace());
      } catch (const process_group::GroupError& caught) {
        PyErr_SetString(kinds.first.ptr(), caught.what_without_backtrace());
      }
    });
    return true;
  }();
  static_cast<void>(registered);
}

void bind_c10d(py::module_& module) {
  module.def("make_c10d_backend", make_c10d_backend, py::arg("store"), py::arg("rank"), py::arg("size"),
             py::arg("name"), py::arg("timeout"), py::arg("secret"));
  bind_technique_bucket(module);
  module.def("set_c10d_errors", set_c10d_errors, py::arg("error"), py::arg("mismatch"));
  module.def("stop_c10d_backends", process_group::stop_all, py::call_guard<adapter::GilReleased>());
  module.def("fail_c10d_backends", process_group::fail_all, py::arg("what"),
             py::call_guard<adapter::GilReleased>());
}

}  // namespace roundelay::bindings

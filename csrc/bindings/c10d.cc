// The backend of torch.distributed (c10d/backend.h).
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <memory>
#include <string>

#include "adapter/gil.h"
#include "adapter/process.h"
#include "bindings/config.h"
#include "bindings/errors.h"
#include "bindings/secret.h"
#include "bindings/topics.h"
#include "process_group/backend.h"
#include "process_group/errors.h"
#include "process_group/store.h"

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

}  // namespace

// Lets MismatchError become this Python class. Later calls do nothing.
void set_c10d_mismatch(const py::object& error) {
  static const py::object& kind = *new py::object(error);
  static const bool registered = [] {
    py::register_exception_translator([](std::exception_ptr thrown) {
      try {
        if (thrown) std::rethrow_exception(thrown);
      } catch (const process_group::MismatchError& mismatch) {
        PyErr_SetString(kind.ptr(), mismatch.what_without_backtrace());
      }
    });
    return true;
  }();
  static_cast<void>(registered);
}

void bind_c10d(py::module_& module) {
  module.def("make_c10d_backend", make_c10d_backend, py::arg("store"), py::arg("rank"), py::arg("size"),
             py::arg("name"), py::arg("timeout"), py::arg("secret"));
  module.def("set_c10d_mismatch", set_c10d_mismatch, py::arg("error"));
  module.def("stop_c10d_backends", process_group::stop_all, py::call_guard<adapter::GilReleased>());
  module.def("fail_c10d_backends", process_group::fail_all, py::arg("what"),
             py::call_guard<adapter::GilReleased>());
}

}  // namespace roundelay::bindings

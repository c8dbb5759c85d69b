// Gradient, GradientGroup and Bucket: the state of an optimizer's gradients between two steps.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "adapter/bucket.h"
#include "adapter/gradient.h"
#include "adapter/gradient_group.h"
#include "bindings/bound_pool.h"
#include "bindings/errors.h"
#include "bindings/global_state.h"
#include "bindings/handles.h"
#include "bindings/topics.h"
#include "compress/registry.h"

namespace roundelay::bindings {
namespace {

using adapter::Bucket;
using adapter::Gradient;
using adapter::GradientGroup;

std::optional<at::Tensor> unless_undefined(at::Tensor tensor) {
  return tensor.defined() ? std::optional(std::move(tensor)) : std::nullopt;
}

py::bytes bytes_of(const std::vector<std::uint8_t>& values) {
  return py::bytes(reinterpret_cast<const char*>(values.data()), values.size());
}

std::unique_ptr<Bucket> make_bucket(const std::string& name, BoundPool& pool, int op, double prescale_factor,
                                    double postscale_factor) {
  const Reduction reduction{op, prescale_factor, postscale_factor, true};
  auto submit = [&pool, reduction](const std::string& operation, const adapter::PoolRange& range,
                                   const adapter::TechniqueUse& technique) {
    return allreduce(pool, range, operation, reduction, technique);
  };
  auto levels = [&pool] {
    const DeviceType device = pool.pool.device().is_cpu() ? DeviceType::kCpu : DeviceType::kGpu;
    return global_context()->levels(pool.process_set, device);
  };
  return std::make_unique<Bucket>(name, pool.pool, std::move(submit), std::move(levels),
                                  global_accelerator());
}

bool arrived(Bucket& bucket, Gradient& gradient) {
  const at::Tensor parameter = gradient.parameter();
  return parameter.defined() && value_of(bucket.arrived(gradient, parameter));
}

void finish(Bucket& bucket) {
  const std::optional<submit::Handle> handle = bucket.in_flight();
  if (!handle) return;
  synchronize(*handle);
  bucket.complete();
}

void abandon(Bucket& bucket) {
  bool failed = false;
  if (const std::optional<submit::Handle> handle = bucket.in_flight()) {
    try {
      synchronize(*handle);
    } catch (const std::runtime_error&) {  // the first failure is being raised already
      failed = true;                       // finish() has taken the handle, or it fails here
    }
  }
  bucket.abandon(failed);
}

std::optional<std::string> technique_of(const Bucket& bucket) {
  const std::string& text = bucket.technique().text();
  return text.empty() ? std::nullopt : std::optional(text);
}

std::uint64_t run_of(const Bucket& bucket) { return bucket.technique().run(); }

void set_run(Bucket& bucket, std::uint64_t run) { check(bucket.set_run(run)); }

using Sent = std::tuple<std::size_t, at::Tensor, std::vector<std::uint32_t>>;

std::optional<Sent> sent_by(const Bucket& bucket) {
  const std::optional<compress::SentChunks> sent = bucket.technique().sent();
  if (!sent) return std::nullopt;
  return Sent(sent->chunk, bucket.technique().sent_indices(*sent), {sent->dense.begin(), sent->dense.end()});
}

using Traffic = std::vector<std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t>>;

Traffic traffic_of(const Bucket& bucket) {
  Traffic traffic;
  for (const auto& [technique, operations, bytes, called_bytes] : bucket.technique().traffic())
    traffic.emplace_back(technique, operations, bytes, called_bytes);
  return traffic;
}

std::vector<std::pair<std::string, std::string>> techniques() {
  std::vector<std::pair<std::string, std::string>> known;
  for (const compress::TechniqueKind* kind : compress::known_techniques())
    known.emplace_back(kind->name, kind->meaning);
  return known;
}

std::string technique_text(const std::string& text) {
  return value_of(compress::make_technique(text))->text();
}

void bind_gradient(py::module_& module) {
  py::class_<Gradient, std::shared_ptr<Gradient>>(module, "Gradient")
      .def(py::init<const at::Tensor&, std::string, bool>(), py::arg("parameter"), py::arg("name"),
           py::arg("additive"))
      .def_property_readonly("parameter",
                             [](const Gradient& self) { return unless_undefined(self.parameter()); })
      .def_property_readonly("wanted", [](const Gradient& self) { return self.wanted(); })
      .def_property_readonly("reductions", &Gradient::reductions)
      .def("local", [](const Gradient& self) { return unless_undefined(self.local(self.parameter())); })
      .def("set_passes", &Gradient::set_passes, py::arg("passes"))
      .def("take", [](Gradient& self) { return unless_undefined(value_of(self.take(self.parameter()))); })
      .def(
          "send", [](Gradient& self, const at::Tensor& tensor) { self.send(self.parameter(), tensor); },
          py::arg("tensor"))
      .def("submitted", &Gradient::submitted)
      .def("complete", &Gradient::complete, py::arg("result"))
      .def("new_step", &Gradient::new_step)
      .def("give_up", &Gradient::give_up);
}

void bind_group(py::module_& module) {
  py::class_<GradientGroup>(module, "GradientGroup")
      .def(py::init([](std::string name) {
             return std::make_unique<GradientGroup>(std::move(name), global_accelerator());
           }),
           py::arg("name"))
      .def("add", &GradientGroup::add, py::arg("gradient"))
      .def(
          "mark_ready",
          [](GradientGroup& self, Gradient& gradient, GradientGroup::Kind kind) {
            return value_of(self.mark_ready(gradient, kind));
          },
          py::arg("gradient"), py::arg("kind"))
      .def("unmark", &GradientGroup::unmark, py::arg("gradient"))
      .def("unmark_all", &GradientGroup::unmark_all)
      .def("any_ready", &GradientGroup::any_ready)
      .def("kinds", [](const GradientGroup& self) { return bytes_of(self.kinds()); })
      .def("wanted", [](const GradientGroup& self) { return bytes_of(self.wanted()); })
      .def("put_back", &GradientGroup::put_back)
      .def("overdue", &GradientGroup::overdue, py::arg("passes"))
      .def("wait_for_producers", [](GradientGroup& self) { check(self.wait_for_producers()); })
      .def("next_name", &GradientGroup::next_name, py::arg("name"))
      .def_property_readonly("operations", &GradientGroup::operations)
      .def_property_readonly("filled", &GradientGroup::filled)
      .def("take_filled", &GradientGroup::take_filled)
      .def("new_step", &GradientGroup::new_step);
}

void bind_bucket(py::module_& module) {
  py::class_<Bucket, GradientGroup>(module, "Bucket")
      .def(py::init(&make_bucket), py::arg("name"), py::arg("pool"), py::arg("op"),
           py::arg("prescale_factor"), py::arg("postscale_factor"), py::keep_alive<1, 3>())
      .def("add", &Bucket::add, py::arg("gradient"), py::arg("entry"))
      .def("arrived", &arrived, py::arg("gradient"))
      .def("submit", [](Bucket& self) { check(self.submit()); })
      .def("finish", &finish)
      .def("abandon", &abandon)
      .def(
          "set_technique",
          [](Bucket& self, const std::optional<std::string>& text) {
            check(self.set_technique(text.value_or("")));
          },
          py::arg("text"))
      .def_property_readonly("technique", &technique_of)
      .def_property_readonly("state",
                             [](Bucket& self) { return unless_undefined(value_of(self.technique_state())); })
      .def_property("run", &run_of, &set_run)
      .def(
          "rescale", [](Bucket& self, double factor) { check(self.rescale(factor)); }, py::arg("factor"))
      .def("sent", &sent_by)
      .def_property_readonly("applied", [](const Bucket& self) { return self.technique().applied(); })
      .def("flush_next", [](Bucket& self) { self.technique().flush_next(); })
      .def_property_readonly("unflushed", [](const Bucket& self) { return self.technique().unflushed(); })
      .def_property_readonly("traffic", &traffic_of)
      .def_property_readonly("turn", &Bucket::turn)
      .def("new_step", &Bucket::new_step);
}

}  // namespace

void bind_gradients(py::module_& module) {
  module.def("techniques", &techniques);
  module.def("technique_text", &technique_text, py::arg("text"));
  bind_gradient(module);
  bind_group(module);
  bind_bucket(module);
}

}  // namespace roundelay::bindings

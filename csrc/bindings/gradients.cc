// Gradient, GradientGroup and Bucket: the state of an optimizer's gradients between two steps.
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/errors.h"
#include "bindings/python_reduction.h"
#include "bindings/topics.h"
#include "compress/registry.h"
#include "gradients/batch_weights.h"
#include "gradients/bucket.h"
#include "gradients/gradient.h"
#include "gradients/group.h"

namespace roundelay::bindings {
namespace {

using gradients::BatchWeights;
using gradients::Bucket;
using gradients::Gradient;
using gradients::GradientGroup;
using gradients::GradientPool;
using gradients::Rule;

std::optional<at::Tensor> unless_undefined(at::Tensor tensor) {
  return tensor.defined() ? std::optional(std::move(tensor)) : std::nullopt;
}

std::shared_ptr<const Rule> make_rule(int op, double prescale_factor, double postscale_factor,
                                      ProcessSetId process_set, bool additive, bool sparse_as_dense,
                                      bool takes_sparse, std::optional<at::ScalarType> wire_type,
                                      std::optional<py::object> compressor,
                                      std::shared_ptr<BatchWeights> weights) {
  auto rule = std::make_shared<Rule>();
  rule->reduction = {op, prescale_factor, postscale_factor};
  rule->process_set = process_set;
  rule->additive = additive;
  rule->sparse_as_dense = sparse_as_dense;
  rule->takes_sparse = takes_sparse;
  rule->wire_type = wire_type;
  if (compressor) rule->compressor = std::make_shared<PythonCompressor>(std::move(*compressor));
  rule->weights = std::move(weights);
  return rule;
}

std::optional<std::string> technique_of(const Bucket& bucket) {
  const std::string& text = bucket.technique().text();
  return text.empty() ? std::nullopt : std::optional(text);
}

using Sent = std::tuple<std::size_t, at::Tensor, std::vector<std::uint32_t>>;

std::optional<Sent> sent_by(const Bucket& bucket) {
  const std::optional<compress::SentChunks> sent = bucket.sent();
  if (!sent) return std::nullopt;
  return Sent(sent->chunk, bucket.technique().sent_indices(*sent), {sent->dense.begin(), sent->dense.end()});
}

std::tuple<std::size_t, std::size_t, double> residual_of(const Bucket& bucket, int place, int shards,
                                                         bool even, int ranks) {
  const compress::Place there{place, shards, shards, even};
  const compress::Residual kept = bucket.technique().residual(bucket.scale_over(ranks), there);
  return {kept.elements.first, kept.elements.count, kept.factor};
}

std::vector<std::pair<std::size_t, std::size_t>> slices_of(const Bucket& bucket) {
  std::vector<std::pair<std::size_t, std::size_t>> slices;
  for (const auto& [first, count] : bucket.slices()) slices.emplace_back(first, count);
  return slices;
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

void bind_rule(py::module_& module) {
  py::class_<BatchWeights, std::shared_ptr<BatchWeights>>(module, "BatchWeights")
      .def(py::init<BatchWeights::Weight, BatchWeights::Refuse>(), py::arg("weight"), py::arg("refuse"))
      .def("restart", &BatchWeights::restart, py::arg("size"));
  py::class_<Rule, std::shared_ptr<Rule>>(module, "Rule")
      .def(py::init([](int op, double prescale_factor, double postscale_factor, ProcessSetId process_set,
                       bool additive, bool sparse_as_dense, bool takes_sparse,
                       std::optional<at::ScalarType> wire_type, std::optional<py::object> compressor,
                       std::shared_ptr<BatchWeights> weights) {
             return std::const_pointer_cast<Rule>(
                 make_rule(op, prescale_factor, postscale_factor, process_set, additive, sparse_as_dense,
                           takes_sparse, wire_type, std::move(compressor), std::move(weights)));
           }),
           py::kw_only(), py::arg("op"), py::arg("prescale_factor") = 1.0, py::arg("postscale_factor") = 1.0,
           py::arg("process_set") = 0, py::arg("additive") = true, py::arg("sparse_as_dense") = true,
           py::arg("takes_sparse") = false, py::arg("wire") = py::none(), py::arg("compressor") = py::none(),
           py::arg("weights") = py::none());
}

void bind_gradient(py::module_& module) {
  py::class_<Gradient, std::shared_ptr<Gradient>>(module, "Gradient")
      .def(py::init<const at::Tensor&, std::string, bool>(), py::arg("parameter"), py::arg("name"),
           py::arg("additive"))
      .def_property_readonly("name", &Gradient::name)
      .def_property_readonly("parameter",
                             [](const Gradient& self) { return unless_undefined(self.parameter()); })
      .def_property_readonly("wanted", [](const Gradient& self) { return self.wanted(); })
      .def_property_readonly("has_set_aside", &Gradient::has_set_aside)
      .def_property("local_passes", &Gradient::passes, &Gradient::set_passes)
      .def("new_step", &Gradient::new_step)
      .def("give_up", &Gradient::give_up);
}

void bind_group(py::module_& module) {
  py::class_<GradientGroup, std::shared_ptr<GradientGroup>>(module, "GradientGroup")
      .def(py::init([](std::string name, std::shared_ptr<Rule> rule) {
             return std::make_shared<GradientGroup>(std::move(name), std::move(rule));
           }),
           py::arg("name"), py::arg("rule"))
      .def_property_readonly("name", &GradientGroup::name)
      .def_property_readonly("gradients", &GradientGroup::gradients)
      .def("add", &GradientGroup::add, py::arg("gradient"));
}

void bind_bucket(py::module_& module) {
  py::class_<Bucket, GradientGroup, std::shared_ptr<Bucket>>(module, "Bucket")
      .def(py::init([](std::string name, std::shared_ptr<GradientPool> pool, std::shared_ptr<Rule> rule) {
             return std::make_shared<Bucket>(std::move(name), std::move(pool), std::move(rule));
           }),
           py::arg("name"), py::arg("pool"), py::arg("rule"))
      .def("add", &Bucket::add, py::arg("gradient"), py::arg("entry"))
      .def_property_readonly("bytes", &Bucket::bytes)
      .def_property_readonly("slices", &slices_of)
      .def("submit", [](Bucket& self) { check(self.submit_all()); })
      .def("finish", [](Bucket& self) { check(self.finish()); })
      .def("abandon", &Bucket::abandon)
      .def(
          "set_technique",
          [](Bucket& self, const std::optional<std::string>& text) {
            check(self.set_technique(text.value_or("")));
          },
          py::arg("text"))
      .def_property_readonly("technique", &technique_of)
      .def_property_readonly("state",
                             [](Bucket& self) { return unless_undefined(value_of(self.technique_state())); })
      .def_property(
          "run", [](const Bucket& self) { return self.technique().run(); },
          [](Bucket& self, std::uint64_t run) { check(self.set_run(run)); })
      .def("join_step", &Bucket::join_step)
      .def("residual", &residual_of, py::arg("place"), py::arg("shards"), py::arg("even"), py::arg("ranks"))
      .def(
          "rescale", [](Bucket& self, double factor) { check(self.rescale(factor)); }, py::arg("factor"))
      .def("sent", &sent_by)
      .def_property_readonly(
          "applied",
          [](const Bucket& self) { return self.number_in_step() > 0 && self.technique().applied(); })
      .def("flush_next", [](Bucket& self) { self.technique().flush_next(); })
      .def_property_readonly("unflushed", [](const Bucket& self) { return self.technique().unflushed(); })
      .def_property_readonly("traffic", &traffic_of)
      .def_property_readonly("number_in_step", &Bucket::number_in_step)
      .def("new_step", &Bucket::new_step);
}

}  // namespace

void bind_gradients(py::module_& module) {
  module.def("techniques", &techniques);
  module.def("technique_text", &technique_text, py::arg("text"));
  bind_rule(module);
  bind_gradient(module);
  bind_group(module);
  bind_bucket(module);
}

}  // namespace roundelay::bindings

// The Python function that agrees on values with the other ranks.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "adapter/operand.h"
#include "bindings/errors.h"
#include "bindings/global_state.h"
#include "bindings/handles.h"
#include "bindings/submission.h"
#include "bindings/topics.h"

namespace roundelay::bindings {
namespace {

using FieldValues = std::vector<std::pair<Merge, py::bytes>>;
using PyDifference = std::tuple<std::uint32_t, std::int32_t, py::bytes, std::int32_t, py::bytes>;

// The result of an agreement, as Python sees it.
struct AgreedFields {
  std::vector<AgreementField> fields;
  Agreed agreed;

  [[nodiscard]] std::vector<py::bytes> values() const {
    std::vector<py::bytes> values;
    const char* begin = agreed.values.data();
    for (const AgreementField& field : fields) {
      values.emplace_back(begin, field.bytes);
      begin += field.bytes;
    }
    return values;
  }
  [[nodiscard]] std::vector<PyDifference> differences() const {
    std::vector<PyDifference> differences;
    for (const Difference& one : agreed.differences)
      differences.emplace_back(one.field, one.rank, one.value, one.other_rank, one.other_value);
    return differences;
  }
};

runtime::Submission agreement_of(const std::string& name, const FieldValues& fields, int root,
                                 ProcessSetId process_set) {
  runtime::Submission submission;
  submission.request = request_of(Operation::kAgreement, name);
  submission.request.root = root;
  submission.process_set = process_set;
  submission.blocking = true;
  for (const auto& [merge, value] : fields) {
    const std::string bytes = value;
    submission.request.fields.push_back({merge, static_cast<std::uint32_t>(bytes.size())});
    submission.values += bytes;
  }
  return submission;
}

// The operand is kept as those of other operations are: if a signal handler raises, the core still needs it.
AgreedFields agree_on(const std::string& name, const FieldValues& fields, int root,
                      ProcessSetId process_set) {
  const auto context = global_context();
  runtime::Submission submission = agreement_of(name, fields, root, process_set);
  adapter::OperandPtr operand = adapter::Operand::make_agreement();
  submission.results = operand.get();
  AgreedFields result{submission.request.fields, {}};
  const submit::Handle handle = value_of(context->submit(std::move(submission)));
  global_operands().keep(handle, std::move(operand));
  const Status status = wait(*context, handle);
  operand = global_operands().take(handle);
  if (!status.ok()) raise_failed(status);
  result.agreed = operand->agreed();
  return result;
}

}  // namespace

void bind_agreements(py::module_& module) {
  py::enum_<Merge>(module, "Merge")
      .value("EQUAL", Merge::kEqual)
      .value("AND", Merge::kAnd)
      .value("OR", Merge::kOr)
      .value("MAX", Merge::kMax)
      .value("ROOT", Merge::kRoot);
  py::class_<AgreedFields>(module, "Agreed")
      .def_property_readonly("values", &AgreedFields::values)
      .def_property_readonly("differences", &AgreedFields::differences)
      .def_property_readonly("absent", [](const AgreedFields& self) { return self.agreed.absent; });
  module.def("agree", agree_on, py::arg("name"), py::arg("fields"), py::arg("root"), py::arg("process_set"));
}

}  // namespace roundelay::bindings

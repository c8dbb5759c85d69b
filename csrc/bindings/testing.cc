// The pure parts of the core, for property tests: roundelay._core.testing.
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "bindings/errors.h"
#include "bindings/topics.h"
#include "wire/codec.h"

namespace roundelay::bindings {
namespace {

struct Testing {};  // a class, because the stub cannot describe a submodule

ConstByteSpan bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

py::bytes python_bytes(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool codec_roundtrip(const py::bytes& message) {
  const std::string text(message);
  const Result<wire::Message> decoded = wire::decode(bytes_of(text));
  if (!decoded.ok()) return false;
  const Bytes again = wire::encode(*decoded);
  if (!std::ranges::equal(again, bytes_of(text)))
    throw std::runtime_error("accepted, but encoded in another way");
  return true;
}

using Tensor = std::tuple<std::string, std::vector<std::int64_t>>;  // name, shape
using Report = std::tuple<std::vector<Tensor>, std::vector<wire::CacheId>, bool>;

py::bytes encode_report(const std::vector<Tensor>& tensors, const std::vector<wire::CacheId>& cached,
                        bool end_linger) {
  if (std::ranges::adjacent_find(cached, std::ranges::greater_equal{}) != cached.end() ||
      (!cached.empty() && cached.front() == wire::kNoCacheId))
    throw py::value_error("cached ids must be positive and ascend");
  wire::Report report;
  for (const auto& [name, shape] : tensors) {
    wire::Request& request = report.requests.emplace_back();
    request.name = name;
    request.shape = shape;
  }
  report.cached = cached;
  report.end_linger = end_linger;
  return python_bytes(wire::encode(report));
}

Report decode_report(const py::bytes& message) {
  const std::string text(message);
  const wire::Message decoded = value_of(wire::decode(bytes_of(text)));
  const auto* report = std::get_if<wire::Report>(&decoded);
  if (report == nullptr) throw py::value_error("not a report");
  std::vector<Tensor> tensors;
  for (const wire::Request& request : report->requests) tensors.emplace_back(request.name, request.shape);
  return {std::move(tensors), report->cached, report->end_linger};
}

}  // namespace

void bind_testing(py::module_& module) {
  py::class_<Testing>(module, "testing", "The pure parts of the core, for property tests.")
      .def_static("codec_roundtrip", codec_roundtrip, py::arg("message"))
      .def_static("encode_report", encode_report, py::arg("tensors"), py::arg("cached"),
                  py::arg("end_linger"))
      .def_static("decode_report", decode_report, py::arg("message"));
}

}  // namespace roundelay::bindings

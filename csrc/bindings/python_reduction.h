// The user's compression of gradients, and reductions that Python carries out.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <utility>

#include "base/status.h"
#include "gradients/flight.h"
#include "gradients/rule.h"

namespace roundelay::bindings {

namespace py = pybind11;

// Calls compress() and decompress() of a Compressor (python/roundelay/torch/compression.py).
class PythonCompressor final : public gradients::Compressor {
 public:
  explicit PythonCompressor(py::object compressor) : compressor_(std::move(compressor)) {}
  Compressed compress(const at::Tensor& gradient) override {
    auto [tensor, context] = compressor_.attr("compress")(gradient).cast<std::pair<at::Tensor, py::object>>();
    return {std::move(tensor), std::make_shared<py::object>(std::move(context))};
  }
  at::Tensor decompress(const Compressed& reduced) override {
    const auto& context = *std::static_pointer_cast<py::object>(reduced.context);
    return compressor_.attr("decompress")(reduced.tensor, context).cast<at::Tensor>();
  }

 private:
  const py::object compressor_;
};

// A reduction in flight whose result a Python function returns: it waits, and raises the operation's error.
class PythonFlight final : public gradients::Flight {
 public:
  explicit PythonFlight(py::object result) : result_(std::move(result)) {}
  [[nodiscard]] Status wait() override {
    reduced_ = result_().cast<at::Tensor>();
    return {};
  }
  at::Tensor result() override { return reduced_; }
  void drop() override {
    try {
      result_();
    } catch (const py::error_already_set& error) {
      if (!error.matches(PyExc_RuntimeError) && !error.matches(PyExc_ValueError)) throw;
    }
  }

 private:
  const py::object result_;
  at::Tensor reduced_;
};

}  // namespace roundelay::bindings

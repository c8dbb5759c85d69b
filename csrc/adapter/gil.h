// Releases Python's lock while a thread waits.
#pragma once

#include <cxxabi.h>
#include <torch/csrc/utils/pybind.h>
#include <unistd.h>

namespace roundelay::adapter {

// Releases the lock for a scope, as pybind11's gil_scoped_release does. When the interpreter ends, Python
// unwinds a daemon thread that asks for the lock, and unwinding out of a destructor would abort the process.
// Such a thread sleeps here instead until the process has ended.
class GilReleased {
 public:
  GilReleased() : state_(PyEval_SaveThread()) {}
  ~GilReleased() {
    try {
      PyEval_RestoreThread(state_);
    } catch (const abi::__forced_unwind&) {
      for (;;) pause();
    }
  }
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* const state_;
};

}  // namespace roundelay::adapter

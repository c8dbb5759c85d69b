#include "bindings/whereabouts.h"

#include <pybind11/pybind11.h>

#include <exception>
#include <string>
#include <thread>
#include <utility>

#include "base/annotations.h"

namespace roundelay::bindings {
namespace {

namespace py = pybind11;

std::string place_of_main_thread() {
  const py::gil_scoped_acquire gil;
  try {
    return py::module_::import("roundelay._internal.whereabouts")
        .attr("of_main_thread")()
        .cast<std::string>();
  } catch (const std::exception& error) {
    return std::string("Python cannot be looked at: ") + error.what();
  }
}

}  // namespace

struct PythonWhereabouts::State {
  Mutex mutex;
  std::thread thread GUARDED_BY(mutex);
  bool looking GUARDED_BY(mutex) = false;
  bool closed GUARDED_BY(mutex) = false;
};

PythonWhereabouts::PythonWhereabouts() : state_(std::make_unique<State>()) {}
PythonWhereabouts::~PythonWhereabouts() { close(); }

void PythonWhereabouts::ask(std::function<void(const std::string&)> tell) {
  State& state = *state_;
  MutexLock lock(state.mutex);
  if (state.closed || state.looking) return;
  if (state.thread.joinable()) state.thread.join();  // its question is answered
  state.looking = true;
  state.thread = std::thread([&state, tell = std::move(tell)] {
    tell(place_of_main_thread());
    MutexLock done(state.mutex);
    state.looking = false;
  });
}

void PythonWhereabouts::close() {
  std::thread last;
  {
    MutexLock lock(state_->mutex);
    state_->closed = true;
    last.swap(state_->thread);
  }
  if (last.joinable()) last.join();
}

}  // namespace roundelay::bindings

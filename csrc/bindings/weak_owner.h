// A Python object that a C++ object calls, and that owns that object.
#pragma once

#include <pybind11/pybind11.h>

namespace roundelay::bindings {

namespace py = pybind11;

// A weak reference, because Python cannot see a cycle that goes through C++.
class WeakOwner {
 public:
  explicit WeakOwner(const py::object& owner) : reference_(owner) {}
  // Calls a method. Returns None if the object no longer exists. Throws what the method raises.
  template <typename... Arguments>
  py::object call(const char* method, Arguments&&... arguments) const {
    const py::object owner = reference_();
    return owner.is_none() ? owner : owner.attr(method)(std::forward<Arguments>(arguments)...);
  }

 private:
  const py::weakref reference_;
};

}  // namespace roundelay::bindings

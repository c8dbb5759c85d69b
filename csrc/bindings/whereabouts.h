// Where the program's Python is, for who asks from another rank.
#pragma once

#include <memory>

#include "runtime/session/inquiry.h"

namespace roundelay::bindings {

// Looks on a thread that lives while a question is open, as the interpreter's lock may be long in coming.
class PythonWhereabouts final : public runtime::Whereabouts {
 public:
  PythonWhereabouts();
  ~PythonWhereabouts() override;
  PythonWhereabouts(const PythonWhereabouts&) = delete;
  PythonWhereabouts& operator=(const PythonWhereabouts&) = delete;

  void ask(std::function<void(const std::string&)> tell) override;
  // Without the GIL, which the thread may wait for. Nothing is told afterwards.
  void close();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace roundelay::bindings

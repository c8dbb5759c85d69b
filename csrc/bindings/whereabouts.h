// Tells another rank at which line the Python program is.
#pragma once

#include <memory>

#include "control/inquiry.h"

namespace roundelay::bindings {

// Takes the GIL on a thread of its own, because that may take long. The thread lives while a question is
// open.
class PythonWhereabouts final : public control::Whereabouts {
 public:
  PythonWhereabouts();
  ~PythonWhereabouts() override;
  PythonWhereabouts(const PythonWhereabouts&) = delete;
  PythonWhereabouts& operator=(const PythonWhereabouts&) = delete;

  void ask(std::function<void(const std::string&)> tell) override;
  // Joins the thread; later questions are dropped. Call it without the GIL, as the thread may wait for the
  // GIL.
  void close();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace roundelay::bindings

// An owned file descriptor. A forked child does not inherit it: the child's copy of the number refers to
// /dev/null, so that a surviving child (a data loader's worker) does not keep a dead rank's connections open.
#pragma once

#include <string>
#include <utility>

#include "base/status.h"

namespace roundelay::platform {

// Movable. Thread-safe between different objects.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd);  // takes ownership; a negative `fd` means none
  ~Fd() { reset(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  // Closes the descriptor.
  void reset();

 private:
  int fd_ = -1;
};

// Returns the system's text for an errno value, in lower case: "connection refused".
std::string errno_text(int error);
// Returns kUnavailable with the text "<what>: <text of errno>".
Status errno_status(const std::string& what, int error);

}  // namespace roundelay::platform

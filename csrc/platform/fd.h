// A file descriptor with an owner. Forked children do not share it: there the number stands for an
// empty stand-in, so that a surviving child (a data loader's worker) cannot keep a dead rank's connections
// open.
#pragma once

#include <string>
#include <utility>

#include "base/status.h"

namespace roundelay::platform {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd);  // takes ownership
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
  void reset();

 private:
  int fd_ = -1;
};

// "connection refused": the system's text for an errno value, in lower case.
std::string errno_text(int error);
// kUnavailable: "<what>: <text of errno>".
Status errno_status(const std::string& what, int error);

}  // namespace roundelay::platform

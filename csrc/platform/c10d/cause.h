// The text of an exception that PyTorch throws.
#pragma once

#include <exception>
#include <string>

namespace roundelay::platform {

// Returns the first line. The other lines are a backtrace.
inline std::string cause_of(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace roundelay::platform

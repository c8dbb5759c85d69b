// What an exception of PyTorch says.
#pragma once

#include <exception>
#include <string>

namespace roundelay::platform {

// The first line: what follows is a backtrace.
inline std::string cause_of(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace roundelay::platform

// The techniques that tests use: those of this build, and those of the libraries that are compiled for tests.
#pragma once

#include <string>

#include "compress/registry.h"

namespace roundelay {

// Returns the text that opens the library of a test's technique: "cyclic:parts=2" begins with its name. Other
// texts stay as they are.
inline std::string with_library(const std::string& text) {
  const std::string name = text.substr(0, text.find(':'));
  if (name != "cyclic" && name != "negate") return text;
  return ROUNDELAY_TEST_TECHNIQUES "/" + name + ".so:" + text;
}

// Makes a technique. "cyclic" and "negate" are of libraries. Any thread; throws where there is no such one.
inline compress::TechniquePtr technique_of(const std::string& text) {
  return compress::make_technique(with_library(text)).value();
}

}  // namespace roundelay

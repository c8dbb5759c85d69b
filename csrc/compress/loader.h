// Opens the libraries of techniques that others have compiled (library.h).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "compress/kind.h"

namespace roundelay::compress {

// A library that this process has opened. It stays open until the process ends, because techniques and tasks
// have their code in it.
struct Library {
  std::string file;         // an absolute path without links
  std::string fingerprint;  // of the file's bytes: 16 hexadecimal digits
  std::span<const TechniqueKind* const> kinds;
};

// Opens the library in a file; a relative path begins at the working directory. A file is opened once: a
// later change of it is seen by new processes only. Any thread. Errors: kInvalidArgument (there is no such
// file; it cannot be loaded, has no techniques, or was compiled for another version of library.h).
[[nodiscard]] Result<const Library*> open_library(std::string_view path);
// Returns the library that has this fingerprint; null: this process has not opened it. Any thread.
[[nodiscard]] const Library* opened_library(std::string_view fingerprint);

}  // namespace roundelay::compress

// The techniques of this build, by name, and those of libraries. Text chooses one: "csc:keep=0.1", or
// "build/negate.so:negate" of a library in a file. Its one form has all parameters, but for lists that are
// empty and for standards that are left out. In place of the file it has the library's fingerprint,
// "negate@9f86d081884c7d65": the path may differ between hosts, the content may not.
//
// To add a technique: a folder here with one .cc file that defines kTechnique, and one line in registry.cc.
// library.h is for one outside of this tree.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"
#include "compress/kind.h"

namespace roundelay::compress {

// Returns all techniques of this build. Any thread.
[[nodiscard]] std::span<const TechniqueKind* const> known_techniques();
// Makes the technique that "name" or "name:key=value,key=value" chooses. "file:" before a name that is of a
// library opens it (loader.h); a first part with a "/" or ".so" at its end is a file. Any thread. Errors:
// kInvalidArgument (no such technique, no such key, a key twice, a value out of range, and those of
// loader.h); the message says what is allowed.
[[nodiscard]] Result<TechniquePtr> make_technique(std::string_view text);

}  // namespace roundelay::compress

// A library of techniques, compiled outside of this tree. Its source includes this header, defines a
// TechniqueKind for each technique, and has one line with their addresses:
//   ROUNDELAY_TECHNIQUE_LIBRARY(&kNegate)
// examples/technique/negate.cc is one; docs/strategies.md has the command that compiles it.
//
// A library may use all that this header includes. Functions that these headers only declare are not there: a
// library that calls one is not opened. Workspace::math() has their arithmetic.
#pragma once

#include <roundelay_technique_headers.h>  // the build writes it: cmake/TechniqueHeaders.cmake

#include "compress/kind.h"

#define ROUNDELAY_AS_TEXT_(text) #text
#define ROUNDELAY_AS_TEXT(macro) ROUNDELAY_AS_TEXT_(macro)

// What passes between the core and a library: objects of these headers and of the standard library, and the
// frames of coroutines.
#ifdef __clang__
#define ROUNDELAY_COMPILER "clang " ROUNDELAY_AS_TEXT(__clang_major__)
#else
#define ROUNDELAY_COMPILER "g++ " ROUNDELAY_AS_TEXT(__GNUC__)
#endif
#ifdef _GLIBCXX_RELEASE
#define ROUNDELAY_LIBRARY \
  "libstdc++ " ROUNDELAY_AS_TEXT(_GLIBCXX_RELEASE) " strings " ROUNDELAY_AS_TEXT(_GLIBCXX_USE_CXX11_ABI)
#else
#define ROUNDELAY_LIBRARY "libc++ " ROUNDELAY_AS_TEXT(_LIBCPP_ABI_VERSION)
#endif
#ifdef _GLIBCXX_DEBUG
#define ROUNDELAY_CONTAINERS " for debugging"
#else
#define ROUNDELAY_CONTAINERS ""
#endif

// The version of all that: the core opens only libraries that were compiled with the same one.
#define ROUNDELAY_TECHNIQUE_ABI                                  \
  "headers " ROUNDELAY_TECHNIQUE_HEADERS ", " ROUNDELAY_COMPILER \
  " ABI " ROUNDELAY_AS_TEXT(__GXX_ABI_VERSION) ", " ROUNDELAY_LIBRARY ROUNDELAY_CONTAINERS

#define ROUNDELAY_EXPORTED [[gnu::visibility("default")]] extern const

// Exports the version, which the core reads first, and the list of techniques, which ends with null.
#define ROUNDELAY_TECHNIQUE_LIBRARY(...)                                                              \
  extern "C" {                                                                                        \
  ROUNDELAY_EXPORTED char roundelay_technique_abi[] = ROUNDELAY_TECHNIQUE_ABI;                        \
  ROUNDELAY_EXPORTED roundelay::compress::TechniqueKind* const roundelay_techniques[] = {__VA_ARGS__, \
                                                                                         nullptr};    \
  }

// Compiles the reference implementation, which is C, as C++: the build needs no other compiler.
#include <blake2/blake2b-ref.c>  // NOLINT(bugprone-suspicious-include)

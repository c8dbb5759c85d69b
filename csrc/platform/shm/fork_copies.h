// Gives forked children one part of a shared mapping. They have nothing of other shared mappings.
#pragma once

#include <cstddef>

#include "base/bytes.h"
#include "base/status.h"

namespace roundelay::platform {

// Gives every child forked from now on `part`, privately: what it writes there is its own, and pages that it
// has not written may show what this process writes later. Only the first call for a mapping counts.
// The rest of the mapping `whole` stays reserved in the child but without access. `fd` is the memory's
// descriptor, `offset` the position of `part` in the memory. Thread-safe. Errors: kUnavailable.
Status copy_in_children(ByteSpan whole, ByteSpan part, int fd, std::size_t offset);
// Undoes copy_in_children(). Call it before unmapping `whole`. Does nothing for a mapping without a copy.
// Thread-safe.
void forget_copies(ByteSpan whole);

}  // namespace roundelay::platform

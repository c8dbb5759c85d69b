// What a forked child has where its parent has shared memory: nothing, or a copy of one part.
#pragma once

#include <cstddef>

#include "base/bytes.h"
#include "base/status.h"

namespace roundelay::platform {

// From now on a child sees a copy (on write) of `part` of the mapping `whole`, and nothing of the rest, whose
// addresses stay taken. `fd` is the memory's, `offset` that of `part` in it. Errors: kUnavailable.
Status copy_in_children(ByteSpan whole, ByteSpan part, int fd, std::size_t offset);
// Before the mapping goes. Does nothing for one that is not copied.
void forget_copies(ByteSpan whole);

}  // namespace roundelay::platform

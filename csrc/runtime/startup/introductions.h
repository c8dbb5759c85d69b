// How the ranks introduce themselves to each other at init.
#pragma once

#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "wire/messages.h"

namespace roundelay::runtime {

// Exchanges the introductions of all ranks; returns them by rank. Errors: kUnavailable, with the same text on
// all ranks if they run different versions; or if another rank's build of the same version is another one.
Result<std::vector<wire::Introduction>> introduce(bootstrap::Bootstrap& ranks, const wire::Introduction& mine,
                                                  Deadline deadline);

// The form of an introduction: the version, a zero, and the message, whose layout may change with the
// version.
Bytes encode_introduction(const wire::Introduction& mine);
// Parses what was gathered, by rank. Errors: as introduce().
Result<std::vector<wire::Introduction>> decode_introductions(std::span<const Bytes> gathered);

}  // namespace roundelay::runtime

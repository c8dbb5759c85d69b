// Announcements in a segment, for the processes or threads that share it.
#pragma once

#include <memory>

#include "collective/shm/segment.h"
#include "lock/announcements.h"

namespace roundelay::collective::shm {

// Makes one member's access. `memory` is the segment of a group of `members` members; the result shares its
// ownership.
std::shared_ptr<lock::Announcements> make_announcements(std::shared_ptr<std::byte> memory, int member,
                                                        int members);

}  // namespace roundelay::collective::shm

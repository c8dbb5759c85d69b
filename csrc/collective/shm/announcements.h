// Announcements in a segment, for processes or threads that share it.
#pragma once

#include <memory>

#include "base/announcements.h"
#include "collective/shm/segment.h"

namespace roundelay::collective::shm {

// `memory`: a segment's, of so many members.
std::shared_ptr<Announcements> make_announcements(std::shared_ptr<std::byte> memory, int member, int members);

}  // namespace roundelay::collective::shm

// Memory of zeros that begins at a page, as shared memory does.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

#include "collective/shm/segment.h"

namespace roundelay {

inline std::shared_ptr<std::byte> zeroed_pages(std::size_t bytes) {
  constexpr std::align_val_t kPage{collective::shm::Segment::kPageBytes};
  auto* const memory = static_cast<std::byte*>(::operator new(bytes, kPage));
  std::memset(memory, 0, bytes);
  return {memory, [](std::byte* p) { ::operator delete(p, kPage); }};
}

// Returns the memory of a group on one node.
inline std::shared_ptr<std::byte> segment_memory(int members) {
  return zeroed_pages(collective::shm::Segment::bytes(members));
}

}  // namespace roundelay

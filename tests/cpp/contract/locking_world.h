// Sessions over shared memory with threads as ranks, so that their schedules lock.
#pragma once

#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "collective/shm/segment.h"
#include "collective/shm/shm_fabric.h"
#include "tests/cpp/contract/session_world.h"

namespace roundelay::contract {

inline std::shared_ptr<std::byte> segment_memory(int members) {
  constexpr std::align_val_t kPage{collective::shm::Segment::kPageBytes};
  auto* const memory =
      static_cast<std::byte*>(::operator new(collective::shm::Segment::bytes(members), kPage));
  std::memset(memory, 0, collective::shm::Segment::bytes(members));
  return {memory, [](std::byte* p) { ::operator delete(p, kPage); }};
}

class LockingWorld : public SessionWorld {
 public:
  explicit LockingWorld(int size, Config config = {})
      : SessionWorld(size, std::move(config), [memory = segment_memory(size)](runtime::SessionParts& parts) {
          const Group group = parts.fabrics.front()->group();
          parts.fabrics.front() = collective::make_shm_fabric(memory, group, {.crowded = true});
        }) {}

  std::int64_t count(int rank, const std::string& name) const {
    return sessions[static_cast<std::size_t>(rank)]->stats().at(name);
  }
};

// Each tensor is an operation of its own: fusion would depend on the order of arrival.
inline Config one_by_one() {
  Config config;
  config.fusion_threshold = 0;
  config.theta.number = 1;
  config.log_level = LogLevel::kError;
  return config;
}

}  // namespace roundelay::contract

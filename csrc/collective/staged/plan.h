// Cuts a call on a GPU's memory into steps in pinned host memory. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/call.h"

namespace roundelay::collective::staged {

inline constexpr std::size_t kElement = 8;  // the size of the largest element

// One call of the CPU's fabric. `given` and `result` are parts of its pinned memory.
struct StagedStep {
  std::size_t pinned = 0;  // the size of the pinned memory
  const std::byte* from =
      nullptr;  // memory on the device, which is copied down to `given` before; null: nothing is
  ByteRange given;
  std::byte* to = nullptr;  // memory on the device, to which `result` is copied up after; null: nothing is
  ByteRange result;
};

// The steps of one call.
class StagedPlan {
 public:
  // `call` has been checked, and outlives it. `self` is this member's index in the group. `piece_bytes` is a
  // multiple of kElement.
  StagedPlan(const Call& call, int self, std::size_t piece_bytes);
  StagedPlan(Call&& call, int self, std::size_t piece_bytes) = delete;

  // Returns the number of steps, at least one. The same on all members.
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] StagedStep operator[](std::uint64_t number) const;
  // Returns the call of the CPU's fabric for a step, in this pinned memory.
  [[nodiscard]] Call on_host(const StagedStep& step, std::byte* pinned) const;

 private:
  const Call& call_;
  const std::size_t self_;
  const bool absent_;
  std::size_t piece_bytes_ = SIZE_MAX;  // SIZE_MAX: the call is not cut
  std::uint64_t count_ = 1;
};

}  // namespace roundelay::collective::staged

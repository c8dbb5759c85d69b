// The part of an algorithm that needs no peer: it copies, scales and reduces this member's memory. On the
// host it is done when a function returns. On a GPU the function enqueues it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "collective/call.h"

namespace roundelay::collective {

// One thread at a time. Results have the bits of kernels/kernels.h. A program asks for work and then calls
// Exchange::send() or receive(): the transfer begins when all work asked for before is done. Errors: the next
// transfers report them.
class LocalWork {
 public:
  virtual ~LocalWork() = default;
  // The ranges do not overlap.
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  virtual void scale_copy(std::byte* to, const std::byte* from, std::size_t count, DType dtype,
                          Scale scale) = 0;
  virtual void cast(std::byte* to, DType to_type, const std::byte* from, DType from_type,
                    std::size_t count) = 0;
  // Computes own = own op incoming, without the scales of `how`.
  virtual void reduce(const Reduction& how, std::byte* own, const std::byte* incoming, std::size_t count) = 0;
  // Computes to = the reduction of all parts, with the scales of `how`.
  virtual void reduce_parts(const Reduction& how, std::byte* to, std::span<const void* const> parts,
                            std::size_t count) = 0;
  // Carries out a call in which nobody else takes part.
  virtual void finish_single(const Call& call) = 0;
};

// Returns the host's, which has no state.
const std::shared_ptr<LocalWork>& host_work();

}  // namespace roundelay::collective

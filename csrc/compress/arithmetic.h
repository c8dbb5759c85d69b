// The arithmetic of techniques, on the CPU or on a GPU behind one interface.
//
// On a GPU work is enqueued to the bucket's stream, and lists of indices stay on the device: the host never
// waits to choose. All pointers of a call are memory of that kind. The bits are the same on both, and on all
// ranks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/status.h"

namespace roundelay::compress {

// Elements that are treated together: chunk i has the elements from i * chunk on; the last one may be
// shorter.
struct Chunking {
  std::size_t count = 0;  // elements
  std::size_t chunk = 1;  // elements of a chunk

  [[nodiscard]] std::size_t chunks() const { return (count + chunk - 1) / chunk; }
};

// One thread at a time. Errors of a GPU: as in base/gpu_runtime.h.
class Arithmetic {
 public:
  virtual ~Arithmetic() = default;
  // to = scale(from), rounded to `to_type`. Both may be the same memory if the types have the same size.
  [[nodiscard]] virtual Status cast(std::byte* to, DType to_type, const std::byte* from, DType from_type,
                                    std::size_t count, Scale scale) = 0;
  // to += from, and sets `from` to zero if `clear`.
  [[nodiscard]] virtual Status add(std::byte* to, std::byte* from, std::size_t count, DType dtype,
                                   bool clear) = 0;
  [[nodiscard]] virtual Status clear(std::byte* at, std::size_t bytes) = 0;
  // norms[i] = the sum of |x| of chunk i, in fp32 (added up in fp64, so that the bits do not depend on
  // threads).
  [[nodiscard]] virtual Status norms(float* norms, const std::byte* from, Chunking of, DType dtype) = 0;
  // indices = the `keep` chunks with the largest norms, ascending; ties go to the lower index.
  [[nodiscard]] virtual Status select(std::uint32_t* indices, std::size_t keep, const float* norms,
                                      std::size_t chunks) = 0;
  // to = the chunks at these indices, side by side. A shorter last chunk is filled with zeros.
  [[nodiscard]] virtual Status gather(std::byte* to, const std::byte* from, Chunking of,
                                      const std::uint32_t* indices, std::size_t chosen, DType dtype) = 0;
  // Puts gathered chunks back to their places: to[chunk] = from, or += from.
  [[nodiscard]] virtual Status scatter(std::byte* to, const std::byte* from, Chunking of,
                                       const std::uint32_t* indices, std::size_t chosen, DType dtype) = 0;
  [[nodiscard]] virtual Status scatter_add(std::byte* to, const std::byte* from, Chunking of,
                                           const std::uint32_t* indices, std::size_t chosen, DType dtype) = 0;
};

}  // namespace roundelay::compress

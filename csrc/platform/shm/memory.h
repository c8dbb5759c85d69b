// Memory that processes of one node share: anonymous (memfd), so that the last mapping's end is its end,
// however that comes about.
#pragma once

#include <cstddef>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "platform/fd.h"

namespace roundelay::platform {

// A mapping of all or a part of it, with its descriptor. Forked children have neither.
class SharedMemory {
 public:
  SharedMemory() = default;
  // New memory of zeros. Nothing is allocated yet: see allocate().
  static Result<SharedMemory> create(std::size_t bytes);
  // Memory that another process created and handed over.
  static Result<SharedMemory> map(Fd fd, std::size_t bytes) { return map(std::move(fd), 0, bytes); }
  // A part of the same memory, whole pages, which may lie behind its end: what is allocated there extends it.
  [[nodiscard]] Result<SharedMemory> map_part(std::size_t offset, std::size_t bytes) const;
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  // Takes the pages of this part for real, near this thread's core: later writes cannot fail (a full tmpfs
  // would end the process by SIGBUS). kUnavailable if there are too few.
  [[nodiscard]] Status allocate(std::size_t offset, std::size_t bytes) const;
  // Gives pages back; they are zeros from now on.
  void discard(std::size_t offset, std::size_t bytes) const;

  // Forked children have a copy of this part, whole pages, as they have of other memory. Errors:
  // kUnavailable.
  [[nodiscard]] Status copy_in_children(std::size_t offset, std::size_t bytes) const;

  [[nodiscard]] ByteSpan span() const { return {data_, bytes_}; }
  [[nodiscard]] const Fd& fd() const { return fd_; }

 private:
  static Result<SharedMemory> map(Fd fd, std::size_t offset, std::size_t bytes);

  Fd fd_;
  std::size_t offset_ = 0;  // of data_ in the memory
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace roundelay::platform

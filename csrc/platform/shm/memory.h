// Memory that processes of one node share. It is anonymous (memfd), so the kernel frees it with its last
// mapping, however the processes end.
#pragma once

#include <cstddef>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "platform/fd.h"

namespace roundelay::platform {

// Owns a mapping of all or a part of the memory, and its descriptor. Forked children have neither. Const
// calls are thread-safe.
class SharedMemory {
 public:
  SharedMemory() = default;
  // Creates memory of zeros. allocate() reserves its pages. Errors of all functions: kUnavailable.
  static Result<SharedMemory> create(std::size_t bytes);
  // Maps memory that another process created and handed over.
  static Result<SharedMemory> map(Fd fd, std::size_t bytes) { return map(std::move(fd), 0, bytes); }
  // Maps a part of the same memory, in whole pages. The part may lie beyond the end of the memory; allocate()
  // then extends the memory.
  [[nodiscard]] Result<SharedMemory> map_part(std::size_t offset, std::size_t bytes) const;
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  // Reserves the pages of this part, on this thread's NUMA node. Without that, a write could end the process
  // by SIGBUS when tmpfs is full. Errors: kUnavailable (too few pages).
  [[nodiscard]] Status allocate(std::size_t offset, std::size_t bytes) const;
  // Gives the pages back. They read as zeros from now on.
  void discard(std::size_t offset, std::size_t bytes) const;

  // Gives forked children a private copy of this part, in whole pages, as of ordinary memory. Call it for at
  // most one part of each mapping. Errors: kUnavailable.
  [[nodiscard]] Status copy_in_children(std::size_t offset, std::size_t bytes) const;

  [[nodiscard]] ByteSpan span() const { return {data_, bytes_}; }
  [[nodiscard]] const Fd& fd() const { return fd_; }

 private:
  static Result<SharedMemory> map(Fd fd, std::size_t offset, std::size_t bytes);

  Fd fd_;
  std::size_t offset_ = 0;  // position of data_ in the memory
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace roundelay::platform

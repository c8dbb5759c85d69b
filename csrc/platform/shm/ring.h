// A ring of bytes in memory that its writer and its reader share. Their counters only grow.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace roundelay::platform {

// The view of one end. Does not own the memory, which was zeros before the first end used it.
class Ring {
 public:
  struct alignas(128) Writer {
    std::atomic<std::uint64_t> written{0};
    std::atomic<std::uint32_t> wants_room{0};  // asks the reader to wake the writer when it has made room
  };
  struct alignas(128) Reader {
    std::atomic<std::uint64_t> read{0};
    std::atomic<std::uint32_t> closed{0};  // the reader reads no more
  };

  Ring(Writer& writer, Reader& reader, ByteSpan bytes) : writer_(&writer), reader_(&reader), bytes_(bytes) {}

  // Writes as many bytes as fit, and returns how many. The writer calls it.
  std::size_t write(std::span<const ConstByteSpan> parts);
  // Returns whether the ring is not full. The writer calls it.
  [[nodiscard]] bool has_room() const;
  // Asks the reader to wake the writer when it has made room, and returns whether there is room now. The
  // writer calls it.
  bool ask_for_room();
  [[nodiscard]] bool reader_closed() const { return reader_->closed.load(std::memory_order_acquire) != 0; }

  // Reads as many bytes as there are, and returns how many. The reader calls it.
  std::size_t read(ByteSpan into);
  // Returns whether the ring holds no bytes. Both ends call it.
  [[nodiscard]] bool empty() const {
    return reader_->read.load(std::memory_order_seq_cst) == writer_->written.load(std::memory_order_seq_cst);
  }
  // Returns true if the writer waits for room, and withdraws its request. The reader calls it.
  bool take_wish_for_room();
  // Tells the writer that nothing more will be read. The reader calls it.
  void close_reader() { reader_->closed.store(1, std::memory_order_release); }

 private:
  Writer* writer_;
  Reader* reader_;
  ByteSpan bytes_;
};

}  // namespace roundelay::platform

// What the ranks of a node share to talk: a ring of bytes from each to each, and for each a word that says
// whether it is looking. A ring has one writer and one reader; both counters only grow.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace roundelay::channel {

// One direction between two ranks, over memory that both see.
class Ring {
 public:
  struct alignas(128) Writer {
    std::atomic<std::uint64_t> written{0};
    std::atomic<std::uint32_t> wants_room{0};  // wake it when there is some
  };
  struct alignas(128) Reader {
    std::atomic<std::uint64_t> read{0};
    std::atomic<std::uint32_t> closed{0};  // it will read nothing more
  };

  Ring(Writer& writer, Reader& reader, ByteSpan bytes) : writer_(&writer), reader_(&reader), bytes_(bytes) {}

  // The writer's. As much as there is room for; how many bytes.
  std::size_t write(std::span<const ConstByteSpan> parts);
  [[nodiscard]] bool has_room() const;
  // Says that it waits for room, and whether there is some by now.
  bool ask_for_room();
  [[nodiscard]] bool reader_closed() const { return reader_->closed.load(std::memory_order_acquire) != 0; }

  // The reader's. As much as there is; how many bytes.
  std::size_t read(ByteSpan into);
  // Anyone's.
  [[nodiscard]] bool empty() const {
    return reader_->read.load(std::memory_order_seq_cst) == writer_->written.load(std::memory_order_seq_cst);
  }
  // True once: the writer waits for the room that was made.
  bool take_wish_for_room();
  void close_reader() { reader_->closed.store(1, std::memory_order_release); }

 private:
  Writer* writer_;
  Reader* reader_;
  ByteSpan bytes_;
};

// All rings of a node, in memory that was zeros before the first rank came.
class Rings {
 public:
  struct alignas(128) Attention {
    std::atomic<std::uint32_t> polling{0};  // a thread polls: no need to wake anyone
    std::atomic<std::uint32_t> asleep{0};   // set by who goes to sleep, cleared by who wakes it
  };

  // Of a node with so many ranks: 65 KiB for two, 17 MiB for 64.
  static constexpr std::size_t bytes(int ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    return n * sizeof(Attention) + n * n * (sizeof(Ring::Writer) + sizeof(Ring::Reader) + ring_bytes(ranks));
  }

  Rings(std::byte* memory, int ranks) : memory_(memory), ranks_(static_cast<std::size_t>(ranks)) {}

  [[nodiscard]] Attention& attention(int rank) const;
  [[nodiscard]] Ring ring(int from, int to) const;

 private:
  static constexpr std::size_t ring_bytes(int ranks) { return std::size_t{ranks <= 16 ? 16U : 4U} << 10U; }

  std::byte* memory_;
  std::size_t ranks_;
};

}  // namespace roundelay::channel

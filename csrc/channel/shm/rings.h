// The shared memory of a node's control plane: a ring of bytes from each rank to each other, and for each
// rank two flags that tell whether it polls or sleeps. A ring has one writer and one reader; their counters
// only grow.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace roundelay::channel {

// The ring from one rank to another, in memory that both share. Does not own the memory.
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

// All rings of a node. The memory must be zeros before the first rank uses it. Does not own the memory.
class Rings {
 public:
  // One rank's flags.
  struct alignas(128) SleepState {
    std::atomic<std::uint32_t> polling{0};  // a thread polls: peers need not wake anyone
    std::atomic<std::uint32_t> asleep{0};   // set before a sleep, cleared by the peer that ends it
  };

  // Returns the memory that a node of `ranks` ranks needs: 65 KiB for two, 17 MiB for 64.
  static constexpr std::size_t bytes(int ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    return n * sizeof(SleepState) + n * n * (sizeof(Ring::Writer) + sizeof(Ring::Reader) + ring_bytes(ranks));
  }

  Rings(std::byte* memory, int ranks) : memory_(memory), ranks_(static_cast<std::size_t>(ranks)) {}

  // `rank`, `from` and `to` are indices within the node.
  [[nodiscard]] SleepState& sleep_state(int rank) const;
  [[nodiscard]] Ring ring(int from, int to) const;

 private:
  static constexpr std::size_t ring_bytes(int ranks) { return std::size_t{ranks <= 16 ? 16U : 4U} << 10U; }

  std::byte* memory_;
  std::size_t ranks_;
};

}  // namespace roundelay::channel

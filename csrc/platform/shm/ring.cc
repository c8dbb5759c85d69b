#include "platform/shm/ring.h"

#include <algorithm>
#include <cstring>

namespace roundelay::platform {

std::size_t Ring::write(std::span<const ConstByteSpan> parts) {
  const std::uint64_t begin = writer_->written.load(std::memory_order_relaxed);
  std::uint64_t at = begin;
  const std::uint64_t end = reader_->read.load(std::memory_order_acquire) + bytes_.size();
  for (ConstByteSpan part : parts) {
    while (!part.empty() && at < end) {
      const std::size_t offset = at % bytes_.size();
      const std::size_t count =
          std::min({part.size(), static_cast<std::size_t>(end - at), bytes_.size() - offset});
      std::memcpy(bytes_.data() + offset, part.data(), count);
      part = part.subspan(count);
      at += count;
    }
  }
  // Sequentially consistent, as is the reader's preparation to sleep: the reader sees this, or is seen
  // asleep.
  if (at != begin) writer_->written.store(at, std::memory_order_seq_cst);
  return static_cast<std::size_t>(at - begin);
}

bool Ring::has_room() const {
  return writer_->written.load(std::memory_order_relaxed) <
         reader_->read.load(std::memory_order_seq_cst) + bytes_.size();
}

bool Ring::ask_for_room() {
  writer_->wants_room.store(1, std::memory_order_seq_cst);
  return has_room();
}

std::size_t Ring::read(ByteSpan into) {
  const std::uint64_t begin = reader_->read.load(std::memory_order_relaxed);
  const std::uint64_t end = writer_->written.load(std::memory_order_acquire);
  std::uint64_t at = begin;
  while (!into.empty() && at < end) {
    const std::size_t offset = at % bytes_.size();
    const std::size_t count =
        std::min({into.size(), static_cast<std::size_t>(end - at), bytes_.size() - offset});
    std::memcpy(into.data(), bytes_.data() + offset, count);
    into = into.subspan(count);
    at += count;
  }
  if (at != begin) reader_->read.store(at, std::memory_order_seq_cst);
  return static_cast<std::size_t>(at - begin);
}

bool Ring::take_wish_for_room() {
  return writer_->wants_room.load(std::memory_order_seq_cst) != 0 && writer_->wants_room.exchange(0) != 0;
}

}  // namespace roundelay::platform

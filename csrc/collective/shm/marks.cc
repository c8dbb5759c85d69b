#include <array>
#include <bit>
#include <cstddef>

#include "collective/shm/segment.h"

namespace roundelay::collective::shm {

using Words = std::array<Word, sizeof(CallMark) / sizeof(Word)>;

void Marks::write(std::uint64_t call, const CallMark& mark) {
  One& one = all[call % kCalls];
  const auto words = std::bit_cast<Words>(mark);
  one.call.store(0, std::memory_order_relaxed);
  for (std::size_t i = 0; i < words.size(); ++i) one.words[i].store(words[i], std::memory_order_release);
  one.call.store(call, std::memory_order_release);
}

std::optional<CallMark> Marks::read(std::uint64_t call) const {
  const One& one = all[call % kCalls];
  if (one.call.load(std::memory_order_acquire) != call) return std::nullopt;
  Words words{};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = one.words[i].load(std::memory_order_acquire);
  // Had a word of the next mark been seen, the 0 before it would be seen here.
  if (one.call.load(std::memory_order_relaxed) != call) return std::nullopt;
  return std::bit_cast<CallMark>(words);
}

}  // namespace roundelay::collective::shm

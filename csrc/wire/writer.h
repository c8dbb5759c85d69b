// Writes values as bytes. The counterpart of wire/reader.h: both have the same calls, so that one layout
// (wire/layout.h) serves both directions.
#pragma once

#include <bit>
#include <cassert>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/bytes.h"
#include "wire/messages.h"

namespace roundelay::wire {

// `out` outlives the writer. One thread at a time uses it.
class Writer {
 public:
  explicit Writer(Bytes& out) : out_(out) {}

  void byte(std::uint8_t value) { out_.push_back(std::byte{value}); }

  // Writes seven bits in each byte, least significant first. The high bit says that more bytes follow.
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) byte(static_cast<std::uint8_t>(value | 0x80));
    byte(static_cast<std::uint8_t>(value));
  }

  // Writes a varint. Signed numbers go in zigzag order (0, -1, 1, -2 ...), so that small ones of either sign
  // are short.
  template <typename T>
  void integer(const char*, T value) {
    if constexpr (std::is_signed_v<T>) {
      const auto wide = static_cast<std::int64_t>(value);
      varint((static_cast<std::uint64_t>(wide) << 1) ^ static_cast<std::uint64_t>(wide >> 63));
    } else {
      varint(value);
    }
  }

  // Writes eight bytes, least significant first. It serves values that use their high bits.
  void fixed(const char*, std::uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) byte(static_cast<std::uint8_t>(value >> shift));
  }
  void fixed(const char* field, std::int64_t value) { fixed(field, static_cast<std::uint64_t>(value)); }
  void fixed(const char* field, double value) { fixed(field, std::bit_cast<std::uint64_t>(value)); }

  // Writes an id as its distance from the expected id, with a flag in the lowest bit. Expects the next id
  // after it.
  void step(const char* field, CacheId id, std::int64_t& expected, bool flag) {
    const std::int64_t distance = std::int64_t{id} - expected;
    integer(field, distance * 2 + (flag ? 1 : 0));
    expected = std::int64_t{id} + 1;
  }

  void boolean(const char*, bool value) { byte(value ? 1 : 0); }

  // Writes up to eight flags into one byte, the first one lowest.
  void flags(const char*, auto... values) {
    static_assert((std::same_as<decltype(values), bool> && ...) && sizeof...(values) <= 8);
    unsigned raw = 0, bit = 0;
    ((raw |= (values ? 1U : 0U) << bit++), ...);
    byte(static_cast<std::uint8_t>(raw));
  }

  template <typename E>
  void enumeration(const char*, E value, [[maybe_unused]] int count) {
    assert(static_cast<int>(value) < count);
    byte(static_cast<std::uint8_t>(value));
  }

  void text(const char*, const std::string& value) {
    varint(value.size());
    const auto* bytes = reinterpret_cast<const std::byte*>(value.data());
    out_.insert(out_.end(), bytes, bytes + value.size());
  }

  template <typename T, typename Item>
  void list(const char*, const std::vector<T>& values, std::size_t /*least bytes an item*/, Item item) {
    varint(values.size());
    for (const T& value : values) item(value);
  }

  template <typename T, typename Item>
  void optional(const char* field, const std::optional<T>& value, Item item) {
    boolean(field, value.has_value());
    if (value) item(*value);
  }

  // Writes the value if `there`, which an earlier flags() call has written.
  template <typename T, typename Item>
  void present(bool there, const std::optional<T>& value, Item item) {
    if (there) item(*value);
  }

  // Writes ascending ids as runs: the number of runs; for each run how many ids it skips, and its length
  // less 1.
  void runs(const char*, const std::vector<CacheId>& ids) {
    std::vector<std::uint64_t> numbers;
    std::uint64_t next = kNoCacheId + 1;  // the least id that may follow
    for (std::size_t i = 0; i < ids.size();) {
      std::size_t end = i + 1;
      while (end < ids.size() && ids[end] == ids[end - 1] + 1) ++end;
      assert(ids[i] >= next);
      numbers.push_back(ids[i] - next);
      numbers.push_back(end - i - 1);
      next = std::uint64_t{ids[end - 1]} + 2;  // an id that is one more would belong to this run
      i = end;
    }
    varint(numbers.size() / 2);
    for (const std::uint64_t number : numbers) varint(number);
  }

  // Only the reader checks.
  void require(bool, const char*, const char*) {}

 private:
  Bytes& out_;
};

}  // namespace roundelay::wire

// Reads values from bytes that it does not trust. The counterpart of wire/writer.h, which describes the
// encodings.
//
// The reader keeps the first error, which is kInternal and names its field and offset. Later calls read
// nothing, so layouts need no checks of their own. After an error no value may be used.
//
// `field` names the value in error texts.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "wire/codec.h"
#include "wire/messages.h"

namespace roundelay::wire {

// The bytes outlive the reader. One thread at a time uses it.
class Reader {
 public:
  explicit Reader(ConstByteSpan in) : in_(in) {}

  [[nodiscard]] std::size_t left() const { return in_.size() - at_; }
  [[nodiscard]] bool ok() const { return error_.ok(); }
  [[nodiscard]] const Status& error() const { return error_; }

  // Records an error at the current offset, unless there is one already.
  void fail(const char* field, const char* what);

  // Records an error unless `valid`.
  void require(bool valid, const char* field, const char* what) {
    if (!valid) fail(field, what);
  }

  std::uint8_t byte(const char* field);

  // Accepts only the shortest form, so that each value has one encoding.
  std::uint64_t varint(const char* field);

  template <typename T>
  void integer(const char* field, T& value) {
    const std::uint64_t raw = varint(field);
    if (!ok()) return;
    if constexpr (std::is_signed_v<T>) {
      const auto wide = static_cast<std::int64_t>((raw >> 1) ^ (~(raw & 1) + 1));
      if (wide < std::numeric_limits<T>::min() || wide > std::numeric_limits<T>::max())
        return fail(field, "is out of range");
      value = static_cast<T>(wide);
    } else {
      if (raw > std::numeric_limits<T>::max()) return fail(field, "is out of range");
      value = static_cast<T>(raw);
    }
  }

  void fixed(const char* field, std::uint64_t& value);
  void fixed(const char* field, std::int64_t& value) {
    std::uint64_t raw = 0;
    fixed(field, raw);
    value = static_cast<std::int64_t>(raw);
  }
  void fixed(const char* field, double& value) {
    std::uint64_t raw = 0;
    fixed(field, raw);
    value = std::bit_cast<double>(raw);
  }

  // Reads an id and a flag; see Writer::step().
  void step(const char* field, CacheId& id, std::int64_t& expected, bool& flag);

  void boolean(const char* field, bool& value) {
    const std::uint8_t raw = byte(field);
    if (raw > 1) return fail(field, "is neither 0 nor 1");
    value = raw == 1;
  }

  void flags(const char* field, std::same_as<bool> auto&... values) {
    const unsigned raw = byte(field);
    if (raw >> sizeof...(values) != 0) return fail(field, "has a flag this build does not know");
    unsigned bit = 0;
    ((values = (raw >> bit++ & 1U) != 0), ...);
  }

  template <typename E>
  void enumeration(const char* field, E& value, int count) {
    const std::uint8_t raw = byte(field);
    if (raw >= count) return fail(field, "has a value this build does not know");
    value = static_cast<E>(raw);
  }

  void text(const char* field, std::string& value);

  // Reads a list; `item` reads one value. `least`: the least number of bytes of an item. A count that the
  // rest of the bytes cannot hold is an error before anything is allocated.
  template <typename T, typename Item>
  void list(const char* field, std::vector<T>& values, std::size_t least, Item item) {
    const std::uint64_t count = varint(field);
    if (!ok()) return;
    if (count > left() / least) return fail(field, "has more items than bytes follow");
    values.reserve(count);
    for (std::uint64_t i = 0; i < count && ok(); ++i) item(values.emplace_back());
  }

  // Reads a byte that says whether the value is there, and the value.
  template <typename T, typename Item>
  void optional(const char* field, std::optional<T>& value, Item item) {
    bool there = false;
    boolean(field, there);
    if (there) item(value.emplace());
  }

  // Reads the value if `there`, which an earlier flags() call has read.
  template <typename T, typename Item>
  void present(bool there, std::optional<T>& value, Item item) {
    if (there) item(value.emplace());
  }

  // Reads ascending ids, kMaxIds at most; see Writer::runs().
  void runs(const char* field, std::vector<CacheId>& ids);

 private:
  ConstByteSpan in_;
  std::size_t at_ = 0;
  Status error_;
};

}  // namespace roundelay::wire

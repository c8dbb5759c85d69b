// Replaces csrc/base/shared_word.h in explorations: every access is one step of a member, and the explorer
// chooses the member that makes the next step.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "tests/cpp/explore/steps.h"

namespace roundelay {

template <typename T>
class SharedWord {
 public:
  static constexpr bool is_always_lock_free = true;

  constexpr SharedWord(T value = {}) : value_(value) {}  // NOLINT(google-explicit-constructor)
  SharedWord(const SharedWord&) = delete;
  SharedWord& operator=(const SharedWord&) = delete;

  [[nodiscard]] T load(std::memory_order /*order*/ = std::memory_order_seq_cst) const {
    const T seen = value_;
    explore::looked(this, seen, sizeof(T) == sizeof(std::uint32_t));
    return seen;
  }
  void store(T value, std::memory_order /*order*/ = std::memory_order_seq_cst) {
    explore::before_write();
    value_ = value;
    explore::wrote(this, 0);
  }
  T exchange(T value, std::memory_order /*order*/ = std::memory_order_seq_cst) {
    explore::before_write();
    const T seen = std::exchange(value_, value);
    explore::wrote(this, seen);
    return seen;
  }
  T fetch_add(T value, std::memory_order /*order*/ = std::memory_order_seq_cst) {
    explore::before_write();
    const T seen = std::exchange(value_, value_ + value);
    explore::wrote(this, seen);
    return seen;
  }
  bool compare_exchange_weak(T& expected, T desired,
                             std::memory_order /*order*/ = std::memory_order_seq_cst) {
    explore::before_write();
    const T seen = value_;
    const bool same = seen == expected;
    if (same) value_ = desired;
    expected = seen;
    explore::wrote(this, seen);
    return same;
  }
  // Reads the word without a step; for models of the kernel.
  [[nodiscard]] T peek() const { return value_; }

 private:
  T value_;
};

}  // namespace roundelay

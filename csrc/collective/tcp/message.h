// What a stream between two members carries (out_stream.h, in_stream.h).
//
// The sender makes the connection. It sends messages: a header, then the bytes. Both sides know the size of
// every message, so that no header is needed to agree on it; the receiver checks that they do.
// - A small message is sent at once. The receiver keeps it until its receive is posted.
// - A large message is sent when the receiver has said, by a notice in the other direction, that its receive
//   is posted. So it goes into the receiver's memory directly, and holds up nothing that comes after it. If
//   the call has a mark, the sender makes an offer meanwhile: a header without the bytes.
// Messages of one tag match in the order of posting, small and large ones each by themselves: that is the
// same, because both sides know which are large.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/status.h"
#include "collective/call_mark.h"

namespace roundelay::collective::tcp {

// The most bytes of a small message. A notice that comes too late costs half a round trip; the copy of a
// message that comes too early costs as much at this size, on a network of 10 Gbit/s.
inline constexpr std::size_t kMostSmall = std::size_t{64} << 10;

// What tells messages apart. Those of one tag belong to calls with one mark: if the marks differ, the members
// are not in the same call. Who finds that fails. Thanks to offers, who receives a small message finds it
// where the sender waits for the notice of a large one.
struct Label {
  std::uint64_t tag;
  CallMark mark;
};
static_assert(sizeof(Label) == sizeof(std::uint64_t) + sizeof(CallMark), "no padding travels");

struct Header {
  std::uint64_t bytes;
  Label label;
};

// `bytes` of an offer.
inline constexpr std::uint64_t kOffer = ~std::uint64_t{0};

// The label of a large message whose receive is posted.
using Notice = Label;

// Returns whether a message that comes after all of an earlier call cannot be one that a member waits for: it
// is of another call, or of an earlier one in which the member did not wait for it.
[[nodiscard]] inline bool differ(const Label& waiting, const Label& other) {
  if (waiting.tag == other.tag && waiting.mark != other.mark) return true;
  return other.mark.set() && other.mark.sequence < waiting.mark.sequence;
}
[[nodiscard]] inline Status calls_differ(const Label& mine, const Label& peers) {
  return Status::mismatch(describe(mine.mark, peers.mark));
}

inline constexpr const char* kClosed = "closed by the peer";

// A position in the bytes of a header or notice that comes in parts.
template <typename T>
class Arriving {
 public:
  // Takes what is lacking from the front of `from`. Returns the number of bytes taken.
  std::size_t take(const std::byte* from, std::size_t available) {
    const std::size_t taken = available < lacking() ? available : lacking();
    std::memcpy(bytes_.data() + filled_, from, taken);
    filled_ += taken;
    return taken;
  }
  [[nodiscard]] bool complete() const { return lacking() == 0; }
  // Returns the value, which is complete, and begins with the next one.
  T next() {
    T value;
    std::memcpy(&value, bytes_.data(), sizeof value);
    filled_ = 0;
    return value;
  }

 private:
  [[nodiscard]] std::size_t lacking() const { return sizeof(T) - filled_; }
  std::array<std::byte, sizeof(T)> bytes_{};
  std::size_t filled_ = 0;
};

}  // namespace roundelay::collective::tcp

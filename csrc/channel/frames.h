// Messages on a byte stream: a length of four bytes, little-endian, then the message. A goodbye is a length
// that no message has, and the last thing on its stream.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/status.h"

namespace roundelay::channel {

inline constexpr std::size_t kFrameHeader = 4;
inline constexpr std::size_t kLongestFrame = std::size_t{64} << 20;

inline constexpr std::size_t kGoodbye = 0xffffffff;  // in place of a length

std::array<std::byte, kFrameHeader> frame_header(std::size_t size);

// Cuts what was read into messages. Usage: read into space(), say how much with filled(), take next() until
// empty.
class FrameReader {
 public:
  explicit FrameReader(std::size_t longest) : longest_(longest) {}
  void set_longest(std::size_t longest) { longest_ = longest; }

  // Where the next read goes; never empty. A large message is read right into its own memory.
  ByteSpan space();
  void filled(std::size_t bytes);
  // Errors: kInternal when a length is over the limit; nothing can be read after that.
  Result<std::optional<Bytes>> next();
  // next() came to the other side's goodbye: it has no more messages.
  [[nodiscard]] bool said_goodbye() const { return said_goodbye_; }

 private:
  static constexpr std::size_t kBuffer = std::size_t{16} << 10;

  [[nodiscard]] std::size_t buffered() const { return end_ - begin_; }

  std::size_t longest_;
  Bytes buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  Bytes large_;  // the message that does not fit the buffer
  std::size_t large_filled_ = 0;
  bool said_goodbye_ = false;
};

// What the medium did not take yet.
class SendQueue {
 public:
  [[nodiscard]] bool empty() const { return frames_.empty(); }
  // A frame, of which `sent` bytes (header included) are on their way already.
  void push(ConstByteSpan message, std::size_t sent = 0);
  void push_goodbye();
  // The bytes to go out next, as far as `parts` has room for them; how many parts were filled.
  std::size_t peek(std::span<ConstByteSpan> parts) const;
  // So many of them are on their way.
  void advance(std::size_t bytes);
  void clear();

 private:
  std::deque<Bytes> frames_;
  std::size_t head_sent_ = 0;  // of the first frame
};

}  // namespace roundelay::channel

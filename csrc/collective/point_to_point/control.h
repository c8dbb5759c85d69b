// The control messages of point to point. All have one size, because both sides of a Transport must know it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "collective/point_to_point/matcher.h"

namespace roundelay::collective {

enum class ControlKind : std::uint32_t {
  kOffer = 1,  // `message` waits on the sender
  kPayload,    // the same, and its bytes are here
  kAnswers,    // what becomes of messages that the receiver of this one has offered
  kGoodbye,    // the sender posts nothing more
};

enum class Decision : std::uint32_t {
  kSend = 1,  // a receive has matched the message: send the bytes now
  kTaken,     // the receive has the bytes, which came with the offer
  kMismatch,  // the receive is for `bytes` bytes
};

struct Answer {
  MessageId message;  // the offer's
  Decision decision;
  std::uint64_t bytes;
};

struct ControlHeader {
  ControlKind kind = ControlKind::kOffer;
  std::uint32_t answers = 0;  // the number of those
  MessageId message = 0;
  MessageTag tag = 0;
  std::uint64_t bytes = 0;  // the size of the message
};

// 512 bytes fit into one packet, and below the size from which MPI asks the receiver first. A peer costs two
// of them. Messages that are small in order to be fast, such as sizes, lengths and flags, fit into the rest.
inline constexpr std::size_t kControlBytes = 512;
inline constexpr std::size_t kMostPayload = kControlBytes - sizeof(ControlHeader);
inline constexpr std::size_t kMostAnswers = kMostPayload / sizeof(Answer);

struct ControlMessage {
  ControlHeader header{};
  union {
    std::array<std::byte, kMostPayload> payload{};
    std::array<Answer, kMostAnswers> answers;
  };
};
static_assert(sizeof(ControlMessage) == kControlBytes && std::is_trivially_copyable_v<ControlMessage>);

}  // namespace roundelay::collective

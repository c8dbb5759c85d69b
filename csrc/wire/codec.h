// Messages <-> bytes. Every length is checked against what is there before anything is allocated;
// hostile bytes give an error, never a crash nor an allocation larger than a small multiple of the input.
#pragma once

#include "base/bytes.h"
#include "base/status.h"
#include "wire/messages.h"

namespace roundelay::wire {

// Ids in one report at most: runs of them are stored as their bounds, so this limits what a few bytes can
// make grow. No response cache may hold more (base/config's CACHE_CAPACITY).
inline constexpr std::size_t kMaxIds = 65536;

// Ids in `cached` must ascend.
Bytes encode(const Message& message);
// Errors: kInternal, naming the field and the offset that is wrong. Trailing bytes are an error.
Result<Message> decode(ConstByteSpan bytes);

}  // namespace roundelay::wire

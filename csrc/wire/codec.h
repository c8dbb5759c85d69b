// Turns messages into bytes and back. Hostile bytes give an error: never a crash, and never an allocation
// larger than a small multiple of the input. Any thread may call.
#pragma once

#include "base/bytes.h"
#include "base/status.h"
#include "wire/messages.h"

namespace roundelay::wire {

// Returns the message as bytes. The ids in Report::cached must ascend.
Bytes encode(const Message& message);
// Returns the message. kInternal: the bytes are no message of this build; the text names the field and the
// offset. Bytes after the message are an error too.
Result<Message> decode(ConstByteSpan bytes);

}  // namespace roundelay::wire

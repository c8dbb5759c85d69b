#include "wire/codec.h"

#include <array>
#include <utility>

#include "wire/layout.h"
#include "wire/reader.h"
#include "wire/writer.h"

namespace roundelay::wire {
namespace {

// First byte of every message. Each change of a layout raises it. Hello's version shows a difference between
// builds first, but only to a peer that can still read Hello.
constexpr std::uint8_t kFormat = 10;

template <typename M>
Message read_as(Reader& in) {
  M message;
  layout(in, message);
  return message;
}

using ReadFunction = Message (*)(Reader&);

// The second byte of a message is its kind: the index of its type in the variant.
template <std::size_t... kKinds>
constexpr auto make_readers(std::index_sequence<kKinds...> /*kinds*/) {
  return std::array<ReadFunction, sizeof...(kKinds)>{
      &read_as<std::variant_alternative_t<kKinds, Message>>...};
}
constexpr auto kReaders = make_readers(std::make_index_sequence<std::variant_size_v<Message>>{});

}  // namespace

Bytes encode(const Message& message) {
  Bytes bytes;
  bytes.reserve(64);
  Writer out(bytes);
  out.byte(kFormat);
  out.byte(static_cast<std::uint8_t>(message.index()));
  std::visit([&](const auto& m) { layout(out, m); }, message);
  return bytes;
}

Result<Message> decode(ConstByteSpan bytes) {
  Reader in(bytes);
  const std::uint8_t format = in.byte("format");
  in.require(format == kFormat, "format", "is not this build's");
  const std::uint8_t kind = in.byte("kind");
  in.require(kind < kReaders.size(), "kind", "is none this build knows");
  if (!in.ok()) return in.error();
  Message message = kReaders[kind](in);
  in.require(in.left() == 0, "message", "is followed by more bytes");
  if (!in.ok()) return in.error();
  return message;
}

}  // namespace roundelay::wire

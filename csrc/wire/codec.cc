#include "wire/codec.h"

#include <array>
#include <utility>

#include "wire/layout.h"
#include "wire/reader.h"
#include "wire/writer.h"

namespace roundelay::wire {
namespace {

// First byte of every message: raised with each change of a layout. Hello's version catches such a difference
// between builds first, but only a peer that still understands Hello can say so.
constexpr std::uint8_t kFormat = 5;

template <typename M>
Message read_as(Reader& in) {
  M message;
  layout(in, message);
  return message;
}

using ReadFunction = Message (*)(Reader&);

// A message's kind, its second byte, is its place in the variant.
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

#include <algorithm>
#include <array>
#include <cstring>

#include "tests/cpp/catch.h"
#include "wire/frames.h"

namespace roundelay::wire {
namespace {

Bytes numbered(std::size_t size, std::size_t seed) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((i * 7 + seed) & 0xff);
  return bytes;
}

Bytes stream_of(const std::vector<Bytes>& messages) {
  Bytes stream;
  for (const Bytes& message : messages) {
    const auto header = frame_header(message.size());
    stream.insert(stream.end(), header.begin(), header.end());
    stream.insert(stream.end(), message.begin(), message.end());
  }
  return stream;
}

std::vector<Bytes> cut(ConstByteSpan stream, std::size_t most_at_once) {
  FrameReader reader(1 << 20);
  std::vector<Bytes> messages;
  while (!stream.empty()) {
    const ByteSpan space = reader.space();
    REQUIRE_FALSE(space.empty());
    const std::size_t size = std::min({space.size(), stream.size(), most_at_once});
    std::memcpy(space.data(), stream.data(), size);
    stream = stream.subspan(size);
    reader.filled(size);
    while (true) {
      auto next = reader.next();
      REQUIRE(next.ok());
      if (!next->has_value()) break;
      messages.push_back(std::move(**next));
    }
  }
  return messages;
}

TEST_CASE("frames: a stream is cut into the same messages wherever reads end") {
  std::vector<Bytes> messages;
  const std::vector<std::size_t> sizes = {0, 1, 5, 16380, 16381, 16379, 0, 100'000, 3, 16384, 40'000, 2};
  for (std::size_t i = 0; i < sizes.size(); ++i) messages.push_back(numbered(sizes[i], i));
  const Bytes stream = stream_of(messages);
  for (const std::size_t step : {1U, 2U, 3U, 5U, 1000U, 16383U, 16384U, 1U << 20}) {
    CAPTURE(step);
    CHECK((cut(stream, step) == messages));
  }
}

TEST_CASE("frames: a length over the limit is an error before anything is allocated") {
  FrameReader reader(100);
  const auto header = frame_header(101);
  std::memcpy(reader.space().data(), header.data(), header.size());
  reader.filled(header.size());
  const auto next = reader.next();
  REQUIRE_FALSE(next.ok());
  CHECK_THAT(next.status().message(), Catch::Matchers::Contains("101") && Catch::Matchers::Contains("100"));
}

TEST_CASE("frames: a queue goes out in order, however little the socket takes") {
  std::vector<Bytes> messages;
  for (std::size_t i = 0; i < 100; ++i) messages.push_back(numbered(i * 97 % 5000, i));
  const Bytes expected = stream_of(messages);
  SendQueue queue;
  for (const Bytes& message : messages) queue.push(message);
  Bytes got;
  std::array<ConstByteSpan, 3> parts;
  for (std::size_t room = 1; !queue.empty(); room = room * 7 % 4099) {
    const std::size_t count = queue.peek(parts);
    REQUIRE(count > 0);
    std::size_t taken = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const ConstByteSpan part = parts[i].first(std::min(parts[i].size(), room - taken));
      got.insert(got.end(), part.begin(), part.end());
      taken += part.size();
    }
    queue.advance(taken);
  }
  CHECK((got == expected));
  CHECK(queue.peek(parts) == 0);
}

}  // namespace
}  // namespace roundelay::wire

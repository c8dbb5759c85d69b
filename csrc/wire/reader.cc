#include "wire/reader.h"

namespace roundelay::wire {

void Reader::fail(const char* field, const char* what) {
  if (!error_.ok()) return;
  error_ = Status::internal("malformed control message: " + std::string(field) + " " + what + " (at byte " +
                            std::to_string(at_) + " of " + std::to_string(in_.size()) + ")");
}

std::uint8_t Reader::byte(const char* field) {
  if (!ok()) return 0;
  if (left() == 0) {
    fail(field, "is cut off");
    return 0;
  }
  return static_cast<std::uint8_t>(in_[at_++]);
}

std::uint64_t Reader::varint(const char* field) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const std::uint8_t raw = byte(field);
    if (!ok()) return 0;
    const std::uint64_t bits = raw & 0x7FU;
    if (shift == 63 && bits > 1) break;
    value |= bits << shift;
    if ((raw & 0x80U) != 0) continue;
    if (raw == 0 && shift > 0) {
      fail(field, "is written in more bytes than it needs");
      return 0;
    }
    return value;
  }
  fail(field, "has more than 64 bits");
  return 0;
}

void Reader::fixed(const char* field, std::uint64_t& value) {
  if (!ok()) return;
  if (left() < 8) return fail(field, "is cut off");
  value = 0;
  for (int shift = 0; shift < 64; shift += 8) value |= std::uint64_t{byte(field)} << shift;
}

void Reader::step(const char* field, CacheId& id, std::int64_t& expected, bool& flag) {
  constexpr std::int64_t kLast = std::numeric_limits<CacheId>::max();
  std::int64_t coded = 0;
  integer(field, coded);
  if (!ok()) return;
  const std::int64_t distance = coded >> 1;
  if (distance < -expected || distance > kLast - expected) return fail(field, "is out of range");
  flag = (coded & 1) != 0;
  id = static_cast<CacheId>(expected + distance);
  expected += distance + 1;
}

void Reader::text(const char* field, std::string& value) {
  const std::uint64_t length = varint(field);
  if (!ok()) return;
  if (length > left()) return fail(field, "is longer than the message");
  value.assign(reinterpret_cast<const char*>(in_.data() + at_), length);
  at_ += length;
}

void Reader::runs(const char* field, std::vector<CacheId>& ids) {
  const std::uint64_t count = varint(field);
  if (!ok()) return;
  if (count > left() / 2) return fail(field, "has more items than bytes follow");
  std::uint64_t next = kNoCacheId + 1;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t skipped = varint(field);
    const std::uint64_t more = varint(field);
    if (!ok()) return;
    constexpr std::uint64_t kLast = std::numeric_limits<CacheId>::max();
    if (next > kLast || skipped > kLast - next || more > kLast - next - skipped)
      return fail(field, "is out of range");
    if (more >= kMaxIds - ids.size()) return fail(field, "has more ids than any cache holds");
    const std::uint64_t first = next + skipped;
    for (std::uint64_t id = first; id <= first + more; ++id) ids.push_back(static_cast<CacheId>(id));
    next = first + more + 2;
  }
}

}  // namespace roundelay::wire

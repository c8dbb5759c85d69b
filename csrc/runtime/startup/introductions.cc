#include "runtime/startup/introductions.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/version.h"
#include "wire/codec.h"

namespace roundelay::runtime {
namespace {

constexpr std::byte kEnd{0};  // of the version
constexpr std::size_t kLongestVersion = 64;

struct Introduced {
  std::string version;
  ConstByteSpan message;
};

// Returns the parts of an introduction. The version is empty if it has none.
Introduced parts_of(ConstByteSpan bytes) {
  const ConstByteSpan head = bytes.first(std::min(bytes.size(), kLongestVersion + 1));
  const auto end = std::ranges::find(head, kEnd);
  if (end == head.end()) return {};
  const auto length = static_cast<std::size_t>(end - head.begin());
  return {to_text(bytes.first(length)), bytes.subspan(length + 1)};
}

constexpr const char* kCure = "; install the same build on every machine";

std::string named(const Introduced& one) {
  return one.version.empty() ? "a build that states no version" : '"' + one.version + '"';
}

}  // namespace

Bytes encode_introduction(const wire::Introduction& mine) {
  Bytes bytes = to_bytes(version());
  bytes.push_back(kEnd);
  const Bytes message = wire::encode(mine);
  bytes.insert(bytes.end(), message.begin(), message.end());
  return bytes;
}

Result<std::vector<wire::Introduction>> decode_introductions(std::span<const Bytes> gathered) {
  std::vector<Introduced> parts;
  for (const Bytes& one : gathered) parts.push_back(parts_of(one));
  const std::string& first = parts.front().version;
  const auto other = std::ranges::find_if(parts, [&](const Introduced& one) { return one.version != first; });
  if (other != parts.end()) {
    return Status::unavailable("ranks run different builds of Roundelay: rank 0 has " + named(parts.front()) +
                               ", rank " + std::to_string(other - parts.begin()) + " has " + named(*other) +
                               kCure);
  }
  std::vector<wire::Introduction> all;
  for (const Introduced& one : parts) {
    auto message = wire::decode(one.message);
    auto* const introduction = message.ok() ? std::get_if<wire::Introduction>(&*message) : nullptr;
    if (introduction == nullptr) {
      return Status::unavailable("rank " + std::to_string(all.size()) +
                                 " runs another build of Roundelay \"" + first + "\" than this rank" + kCure);
    }
    all.push_back(std::move(*introduction));
  }
  return all;
}

Result<std::vector<wire::Introduction>> introduce(bootstrap::Bootstrap& ranks, const wire::Introduction& mine,
                                                  Deadline deadline) {
  const auto gathered = ranks.all_gather(encode_introduction(mine), deadline);
  if (!gathered.ok()) return gathered.status();
  return decode_introductions(*gathered);
}

}  // namespace roundelay::runtime

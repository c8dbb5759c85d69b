// Tells apart what members have to agree on, in the few bits that a call's mark has for it. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace roundelay::process_group {

// FNV-1a.
class Digest {
 public:
  void add(std::string_view text) {
    for (const char one : text) value_ = (value_ ^ static_cast<unsigned char>(one)) * 0x100000001b3U;
  }
  void add(std::uint64_t number) { add({reinterpret_cast<const char*>(&number), sizeof number}); }
  [[nodiscard]] std::int32_t value() const {
    return static_cast<std::int32_t>((value_ ^ (value_ >> 32)) & 0x7fffffffU);
  }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

// Returns the digest of each member's bytes; -1 if all have as many: then their sum says it.
inline std::int32_t digest_of(const std::vector<std::size_t>& sizes) {
  if (std::ranges::adjacent_find(sizes, std::ranges::not_equal_to()) == sizes.end()) return -1;
  Digest digest;
  for (const std::size_t one : sizes) digest.add(std::uint64_t{one});
  return digest.value();
}

}  // namespace roundelay::process_group

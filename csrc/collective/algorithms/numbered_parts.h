// The parts of members, which follow each other in memory, by the members' numbers in recursive doubling. The
// part of a member that gives away belongs to the number of its pair.
#pragma once

#include <cstddef>
#include <vector>

#include "base/bytes.h"
#include "collective/algorithms/doubling.h"

namespace roundelay::collective {

class NumberedParts {
 public:
  // `bytes` has the size of each member's part.
  NumberedParts(Doubling doubling, const std::vector<std::size_t>& bytes)
      : doubling_(doubling), begins_(bytes.size() + 1, 0) {
    for (std::size_t member = 0; member < bytes.size(); ++member) {
      begins_[member + 1] = begins_[member] + bytes[member];
    }
  }

  [[nodiscard]] std::size_t bytes() const { return begins_.back(); }
  // Returns the part of one member.
  [[nodiscard]] ByteRange of_member(int index) const { return between(index, index + 1); }
  // Returns the parts of `count` numbers from `first` on.
  [[nodiscard]] ByteRange of_numbers(int first, int count) const {
    return between(doubling_.index_of(first), doubling_.index_of(first + count));
  }

 private:
  [[nodiscard]] ByteRange between(int first, int end) const {
    const std::size_t begin = begins_[static_cast<std::size_t>(first)];
    return {begin, begins_[static_cast<std::size_t>(end)] - begin};
  }

  Doubling doubling_;
  std::vector<std::size_t> begins_;  // the beginning of each member's part, and the end of the last one
};

}  // namespace roundelay::collective

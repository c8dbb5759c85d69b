// The bytes of a call where their owners have them: runs in different places, one behind the other in the
// order of the list, so that several tensors travel in one call and nobody packs or unpacks them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace roundelay::collective {

class ScatterList {
 public:
  // What is given and where the result goes: the same place, or apart from all that the call reads or writes.
  struct Run {
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    std::size_t bytes = 0;
  };

  void reserve(std::size_t runs) {
    runs_.reserve(runs);
    begins_.reserve(runs);
  }
  // Whole elements, behind what is there. Of an empty run the addresses do not matter.
  void add(Run run) {
    if (run.bytes == 0) return;
    runs_.push_back(run);
    begins_.push_back(bytes_);
    bytes_ += run.bytes;
  }

  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  // Visits `bytes` bytes from `offset` on, which are in the list, in order: visit(at, run) for each run, cut
  // to that range; `at` counts from `offset`.
  template <typename Visit>
  void for_each(std::size_t offset, std::size_t bytes, Visit&& visit) const {
    if (bytes == 0) return;
    const auto after = std::upper_bound(begins_.begin(), begins_.end(), offset);
    auto i = static_cast<std::size_t>(after - begins_.begin()) - 1;
    for (std::size_t at = 0; at < bytes; ++i) {
      const std::size_t skipped = offset + at - begins_[i];
      const std::size_t length = std::min(runs_[i].bytes - skipped, bytes - at);
      visit(at, Run{runs_[i].input + skipped, runs_[i].output + skipped, length});
      at += length;
    }
  }

 private:
  std::vector<Run> runs_;            // none is empty
  std::vector<std::size_t> begins_;  // of each, in the whole
  std::size_t bytes_ = 0;
};

}  // namespace roundelay::collective

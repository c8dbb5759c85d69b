// The bytes of a call in the places where their owners keep them. The list joins runs of memory to one
// sequence of bytes, so that several tensors travel in one call without packing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace roundelay::collective {

class ScatterList {
 public:
  // The input and the place of its result: the same place, or one that overlaps nothing else of the call.
  struct Run {
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    std::size_t bytes = 0;
  };

  void reserve(std::size_t runs) {
    runs_.reserve(runs);
    begins_.reserve(runs);
  }
  // Appends a run of whole elements. The addresses of an empty run do not matter.
  void add(Run run) {
    if (run.bytes == 0) return;
    runs_.push_back(run);
    begins_.push_back(bytes_);
    bytes_ += run.bytes;
  }

  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  // Calls visit(at, run) in order for each run that overlaps the `bytes` bytes from `offset` on, cut to them.
  // `at` is the run's distance from `offset`. The range is inside the list.
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
  std::vector<std::size_t> begins_;  // the offset of each run in the list
  std::size_t bytes_ = 0;
};

}  // namespace roundelay::collective

// Collects the submissions that fail, until the next order takes them, and counts unnamed submissions: a join
// that fails or completes tells the members from where to count on. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "wire/messages.h"

namespace roundelay::negotiate {

class Failures {
 public:
  // Counts the request, which became ready or fails.
  void count(const wire::Request& request) {
    std::uint64_t& count = unnamed_[static_cast<std::size_t>(request.operation)];
    count = std::max(count, request.unnamed);
  }
  // Returns the largest number of an unnamed submission that was counted, for each operation.
  [[nodiscard]] std::vector<std::uint64_t> counters() const { return {unnamed_.begin(), unnamed_.end()}; }

  // Counts the request, and keeps its failure.
  void add(const wire::Request& request, StatusCode code, std::string text) {
    count(request);
    const bool joins = request.operation == Operation::kJoin;
    failures_.push_back(
        {request.name, code, std::move(text), joins ? counters() : std::vector<std::uint64_t>()});
  }
  [[nodiscard]] bool empty() const { return failures_.empty(); }
  [[nodiscard]] std::vector<wire::Failure> take() { return std::exchange(failures_, {}); }

 private:
  std::array<std::uint64_t, kOperationCount> unnamed_{};
  std::vector<wire::Failure> failures_;
};

}  // namespace roundelay::negotiate

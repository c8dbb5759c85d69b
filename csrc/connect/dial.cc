#include "connect/dial.h"

#include <algorithm>
#include <utility>

namespace roundelay::connect {

void Dial::begin_at(std::size_t address) {
  if (endpoints_.empty()) return;
  const auto first = endpoints_.begin() + static_cast<std::ptrdiff_t>(address % endpoints_.size());
  std::rotate(endpoints_.begin(), first, endpoints_.end());
}

std::optional<platform::Socket> Dial::next() {
  while (next_ < endpoints_.size()) {
    auto socket = platform::Socket::start_connect(endpoints_[next_++]);
    if (socket.ok()) return std::move(socket).value();
    last_failure_ = socket.status().message();
  }
  return std::nullopt;
}

void Dial::failed(const std::string& why, bool again) {
  last_failure_ = endpoints_[next_ - 1].to_string() + ": " + why;
  if (again && repeats_++ < kMostRepeats) --next_;
}

Status Dial::unreachable(int rank) const {
  const std::string why =
      endpoints_.empty() ? "it has no network address that this machine could use" : last_failure_;
  return Status::aborted("cannot connect to rank " + std::to_string(rank) + " on " + std::string(host()) +
                         ": " + why);
}

}  // namespace roundelay::connect

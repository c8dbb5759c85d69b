#include "collective/present.h"

#include <algorithm>

namespace roundelay::collective {
namespace {

void keep(std::vector<std::size_t>& sizes, const std::vector<int>& members) {
  for (std::size_t i = 0; i < members.size(); ++i) sizes[i] = sizes[static_cast<std::size_t>(members[i])];
  sizes.resize(members.size());
}

// Makes the call that of a group of these members alone.
template <class Kind>
void leave_out_absent(Kind& call, const std::vector<int>& members) {
  std::apply([&](auto&... sizes) { (keep(sizes, members), ...); }, call.sizes());
}
void leave_out_absent(BroadcastCall& call, const std::vector<int>& members) {
  call.root = static_cast<int>(std::ranges::lower_bound(members, call.root) - members.begin());
}

}  // namespace

bool is_absent(const CallOptions& call, int member) {
  return std::binary_search(call.absent.begin(), call.absent.end(), member);
}

std::vector<int> present_members(const CallOptions& call, int size) {
  std::vector<int> members;
  for (int member = 0; member < size; ++member) {
    if (!is_absent(call, member)) members.push_back(member);
  }
  return members;
}

Call among_present(const Call& call, int size) {
  Call smaller = call;
  CallOptions& options = options_of(smaller);
  if (options.absent.empty()) return smaller;
  const std::vector<int> members = present_members(options, size);
  options.absent.clear();
  std::visit([&members](auto& one) { leave_out_absent(one, members); }, smaller);
  return smaller;
}

}  // namespace roundelay::collective

#include "collective/present.h"

#include <algorithm>

namespace roundelay::collective {
namespace {

std::vector<std::size_t> pick(const std::vector<std::size_t>& sizes, const std::vector<int>& members) {
  std::vector<std::size_t> picked;
  if (sizes.empty()) return picked;
  for (const int member : members) picked.push_back(sizes[static_cast<std::size_t>(member)]);
  return picked;
}

}  // namespace

bool is_absent(const Call& call, int member) {
  return std::binary_search(call.absent.begin(), call.absent.end(), member);
}

std::vector<int> present_members(const Call& call, int size) {
  std::vector<int> members;
  for (int member = 0; member < size; ++member) {
    if (!is_absent(call, member)) members.push_back(member);
  }
  return members;
}

Call among_present(const Call& call, int size) {
  Call smaller = call;
  if (call.absent.empty()) return smaller;
  const std::vector<int> members = present_members(call, size);
  smaller.absent.clear();
  smaller.send_bytes = pick(call.send_bytes, members);
  smaller.receive_bytes = pick(call.receive_bytes, members);
  smaller.root =
      static_cast<int>(std::lower_bound(members.begin(), members.end(), call.root) - members.begin());
  return smaller;
}

}  // namespace roundelay::collective

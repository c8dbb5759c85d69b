#include "runtime/startup/closed_nodes.h"

#include <string_view>
#include <utility>

#include "platform/shm/handover.h"

namespace roundelay::runtime {
namespace {

// Begins what a rank says if another user answered it.
constexpr std::string_view kAnotherUser = "!";

// Returns what is wrong between this rank and the others of its node; empty: nothing.
std::string what_is_wrong(int rank, const std::vector<NodeInfo>& nodes, const std::string& no_shm_socket) {
  std::string wrong = no_shm_socket;
  bool is_first = true;  // the first member hands the memory out
  for (std::size_t other = 0; other < nodes.size(); ++other) {
    const NodeInfo& info = nodes[other];
    if (info.node != nodes[static_cast<std::size_t>(rank)].node) continue;
    const bool hands_out = std::exchange(is_first, false);
    if (info.shm_socket.empty() || static_cast<int>(other) == rank) continue;
    const Status reached = platform::reach(info.shm_socket);
    if (reached.code() == StatusCode::kAborted) {
      return std::string(kAnotherUser) + "where rank " + std::to_string(other) + " should answer, " +
             reached.message();
    }
    if (hands_out && wrong.empty()) wrong = reached.message();
  }
  return wrong;
}

}  // namespace

Result<std::map<std::string, std::string>> closed_nodes(bootstrap::Bootstrap& ranks,
                                                        const std::vector<NodeInfo>& nodes,
                                                        const std::string& no_shm_socket, Deadline deadline) {
  const auto all = ranks.all_gather(to_bytes(what_is_wrong(ranks.rank(), nodes, no_shm_socket)), deadline);
  if (!all.ok()) return all.status();
  std::map<std::string, std::string> closed;
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    const std::string text = to_text((*all)[rank]);
    if (text.empty()) continue;
    const std::string by = "rank " + std::to_string(rank) + ": ";
    if (text.starts_with(kAnotherUser)) return Status::unavailable(by + text.substr(kAnotherUser.size()));
    closed.emplace(nodes[rank].node, by + text);
  }
  return closed;
}

}  // namespace roundelay::runtime

#include "execute/late_peers.h"

#include "base/log.h"

namespace roundelay::execute {
namespace {

// The time in which what a rank has sent before it left must come.
constexpr Duration kLastBytes = std::chrono::seconds(5);

std::string name_of_peer(const Batch& batch) {
  const int peer = batch.waiting_for();
  return peer >= 0 ? "rank " + std::to_string(peer) : "its peers";
}

}  // namespace

void LatePeers::note_left(int rank) {
  if (left_.load() >= 0) return;
  left_at_.store(steady_now());
  left_.store(rank);
}

int LatePeers::left_rank() const {
  const int rank = left_.load();
  return rank >= 0 && steady_now() - left_at_.load() > kLastBytes ? rank : -1;
}

Status LatePeers::look(Batch& batch) const {
  if (batch.whole_call() == nullptr) return {};
  const int left = left_rank();
  if (left >= 0 && batch.waiting_for() == left) {
    return Status::aborted("rank " + std::to_string(left) + " has left the process group");
  }
  if (batch.told_late || warn_after_ == Duration{0}) return {};
  const Duration taken = steady_now() - batch.started;
  if (taken < warn_after_) return {};
  batch.told_late = true;
  log(LogLevel::kWarning, batch.describe() + " has taken " + seconds_text(taken) +
                              " so far: this rank waits for " + name_of_peer(batch));
  return {};
}

std::string LatePeers::past_its_time(const Batch& batch, int rank) {
  return "rank " + std::to_string(rank) + " has waited " + seconds_text(steady_now() - batch.started) +
         " for " + name_of_peer(batch) + " in " + batch.describe() +
         ", which is longer than the timeout of this call";
}

}  // namespace roundelay::execute

#include "collective/inproc/hub.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/cores.h"
#include "collective/engine/algorithm_fabric.h"
#include "collective/engine/slots.h"

namespace roundelay::collective {

class InprocTransport final : public Transport {
 public:
  InprocTransport(std::shared_ptr<InprocHub> hub, int index) : hub_(std::move(hub)), index_(index) {}
  // Afterwards nobody writes to this member's memory.
  ~InprocTransport() override { hub_->withdraw(index_); }

  [[nodiscard]] int index() const override { return index_; }
  [[nodiscard]] int size() const override { return static_cast<int>(hub_->members_); }

  Result<TransferId> send(int peer, ConstByteSpan data, int tag) override {
    return keep(hub_->post({index_, peer, tag, data, {}}, true));
  }
  Result<TransferId> receive(int peer, ByteSpan data, int tag) override {
    return keep(hub_->post({peer, index_, tag, {}, data}, false));
  }
  Result<bool> test(TransferId id) override {
    Result<bool> done = hub_->test(*slots_[id]);
    if (done.ok() && *done) {
      slots_[id] = nullptr;
      slots_.release(id);
    }
    return done;
  }

 private:
  TransferId keep(InprocHub::PostedPtr posted) {
    const TransferId id = slots_.acquire();
    slots_[id] = std::move(posted);
    return id;
  }

  const std::shared_ptr<InprocHub> hub_;
  const int index_;
  Slots<InprocHub::PostedPtr> slots_;
};

InprocHub::InprocHub(int members, std::shared_ptr<SimulatedNetwork> network)
    : members_(static_cast<std::size_t>(members)),
      network_(std::move(network)),
      links_(members_ * members_),
      silent_(members_),
      failed_(members_) {}

std::unique_ptr<Transport> InprocHub::transport(int index) {
  return std::make_unique<InprocTransport>(shared_from_this(), index);
}

InprocHub::Link& InprocHub::link(int from, int to) {
  return links_[static_cast<std::size_t>(from) * members_ + static_cast<std::size_t>(to)];
}

InprocHub::PostedPtr InprocHub::post(Posted posted, bool is_send) {
  auto mine = std::make_shared<Posted>(posted);
  MutexLock lock(mutex_);
  if (silent_[static_cast<std::size_t>(posted.from)] || silent_[static_cast<std::size_t>(posted.to)])
    return mine;
  Link& between = link(posted.from, posted.to);
  std::deque<PostedPtr>& theirs = is_send ? between.receives : between.sends;
  const auto match = std::find_if(theirs.begin(), theirs.end(),
                                  [&](const PostedPtr& other) { return other->tag == posted.tag; });
  if (match == theirs.end()) {
    (is_send ? between.sends : between.receives).push_back(mine);
    return mine;
  }
  const PostedPtr other = *match;
  theirs.erase(match);
  const ConstByteSpan source = is_send ? mine->source : other->source;
  const ByteSpan target = is_send ? other->target : mine->target;
  mine->sizes_differ = other->sizes_differ = source.size() != target.size();
  if (!mine->sizes_differ && !source.empty()) std::memcpy(target.data(), source.data(), source.size());
  mine->done = other->done = true;
  if (network_ != nullptr) {
    mine->arrives = other->arrives = network_->delivery(posted.from, posted.to, source.size());
  }
  return mine;
}

Result<bool> InprocHub::test(const Posted& posted) {
  MutexLock lock(mutex_);
  if (posted.sizes_differ) return Status::internal("sender and receiver disagree on a message's size");
  if (posted.done) return network_ == nullptr || posted.arrives <= network_->now();
  for (const int member : {posted.from, posted.to}) {
    if (failed_[static_cast<std::size_t>(member)]) {
      return Status::aborted("the connection to member " + std::to_string(member) + " was lost");
    }
  }
  return false;
}

void InprocHub::silence(int index) {
  withdraw(index);
  MutexLock lock(mutex_);
  silent_[static_cast<std::size_t>(index)] = true;
}

void InprocHub::fail(int index) {
  MutexLock lock(mutex_);
  failed_[static_cast<std::size_t>(index)] = true;
}

void InprocHub::withdraw(int index) {
  MutexLock lock(mutex_);
  for (int other = 0; other < static_cast<int>(members_); ++other) {
    link(index, other).sends.clear();
    link(other, index).receives.clear();
  }
}

std::unique_ptr<Fabric> make_inproc_fabric(const std::shared_ptr<InprocHub>& hub, Group group,
                                           Select select) {
  auto state = std::make_shared<FabricState>();
  state->transport = hub->transport(group.index);
  state->crowded = outnumber_cores(group.size());
  state->group = std::move(group);
  AlgorithmFabric::Options options;
  options.name = "inproc";
  options.select = std::move(select);
  return std::make_unique<AlgorithmFabric>(std::move(state), options);
}

}  // namespace roundelay::collective

// The fabric contract over a process group that blocks as Gloo's does: a member that waits for a message does
// nothing else, and messages of a pair match by tag. Faults: a member dies, a member never answers.
#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "base/annotations.h"
#include "collective/c10d/c10d_fabric.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/fabric_contract.h"
#include "tests/cpp/contract/lone_broadcast.h"

namespace roundelay::contract {
namespace {

using collective::C10dFabricOptions;
using collective::make_c10d_fabric;
using collective::PendingCall;
using platform::GroupWork;
using platform::ProcessGroup;

// The place where the members of one group post. A transfer is over when both sides have posted it.
class Wires {
 public:
  struct Posted {
    Posted(ByteSpan bytes, int sender, int receiver) : data(bytes), from(sender), to(receiver) {}
    const ByteSpan data;
    const int from, to;
    bool done = false, given_up = false;
    CondVar changed;  // one per transfer: many wait at once, and a change concerns one of them
  };
  using PostedPtr = std::shared_ptr<Posted>;

  PostedPtr post(int from, int to, int tag, ByteSpan data, bool is_send) EXCLUDES(mutex_) {
    const auto mine = std::make_shared<Posted>(data, from, to);
    MutexLock lock(mutex_);
    Line& line = lines_[{from, to, tag}];
    auto& theirs = is_send ? line.receives : line.sends;
    if (theirs.empty()) {
      (is_send ? line.sends : line.receives).push_back(mine);
      return mine;
    }
    const PostedPtr other = theirs.front();
    theirs.pop_front();
    const ByteSpan source = is_send ? mine->data : other->data;
    const ByteSpan target = is_send ? other->data : mine->data;
    if (!other->given_up && source.size() == target.size()) {
      std::copy(source.begin(), source.end(), target.begin());
      mine->done = other->done = true;
    }
    other->changed.notify_all();
    return mine;
  }
  Status wait(Posted& posted) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (!posted.done && !posted.given_up && dead_ != posted.from && dead_ != posted.to) {
      posted.changed.wait_until(mutex_, Deadline::never());
    }
    if (posted.done) return {};
    return Status::aborted(posted.given_up ? "given up" : "Connection closed by peer");
  }
  void give_up(Posted& posted) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    posted.given_up = true;
    posted.changed.notify_all();
  }
  void kill(int member) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    dead_ = member;
    for (const auto& [ends, line] : lines_) {
      for (const auto* waiting : {&line.sends, &line.receives}) {
        for (const PostedPtr& posted : *waiting) posted->changed.notify_all();
      }
    }
  }

 private:
  struct Line {
    std::deque<PostedPtr> sends, receives;
  };
  Mutex mutex_;
  std::map<std::tuple<int, int, int>, Line> lines_ GUARDED_BY(mutex_);
  int dead_ GUARDED_BY(mutex_) = -1;
};

class WireWork final : public GroupWork {
 public:
  WireWork(std::shared_ptr<Wires> wires, Wires::PostedPtr posted)
      : wires_(std::move(wires)), posted_(std::move(posted)) {}
  Status wait() override { return wires_->wait(*posted_); }
  void abort() override { wires_->give_up(*posted_); }

 private:
  const std::shared_ptr<Wires> wires_;
  const Wires::PostedPtr posted_;
};

class WireGroup final : public ProcessGroup {
 public:
  WireGroup(std::shared_ptr<Wires> wires, int index) : wires_(std::move(wires)), index_(index) {}
  Result<std::shared_ptr<GroupWork>> send(int peer, ConstByteSpan data, int tag) override {
    const ByteSpan bytes(const_cast<std::byte*>(data.data()), data.size());
    return work(wires_->post(index_, peer, tag, bytes, true));
  }
  Result<std::shared_ptr<GroupWork>> receive(int peer, ByteSpan data, int tag) override {
    return work(wires_->post(peer, index_, tag, data, false));
  }

 private:
  [[nodiscard]] std::shared_ptr<GroupWork> work(Wires::PostedPtr posted) const {
    return std::make_shared<WireWork>(wires_, std::move(posted));
  }
  const std::shared_ptr<Wires> wires_;
  const int index_;
};

std::vector<std::unique_ptr<Fabric>> fabrics_of(const std::shared_ptr<Wires>& wires, int size,
                                                const C10dFabricOptions& options = {}) {
  std::vector<std::unique_ptr<Fabric>> fabrics;
  for (int i = 0; i < size; ++i) {
    Group group;
    for (int rank = 0; rank < size; ++rank) group.ranks.push_back(10 + rank);
    group.index = i;
    fabrics.push_back(make_c10d_fabric(std::make_unique<WireGroup>(wires, i), group, options));
  }
  return fabrics;
}

class WireMedium final : public Medium {
 public:
  explicit WireMedium(std::size_t most_message_bytes) : most_message_bytes_(most_message_bytes) {}
  [[nodiscard]] int largest_group() const override { return std::min(largest_of_threads(), 4); }
  std::string run(int size, Select select, const Part& part) override {
    const C10dFabricOptions options{most_message_bytes_, select};
    return run_on_threads(fabrics_of(std::make_shared<Wires>(), size, options), part);
  }

 private:
  const std::size_t most_message_bytes_;
};

TEST_CASE("c10d keeps the fabric contract", "[fabric][slow]") {
  for (const Test& test : fabric_contract()) {
    SECTION(test.name) {
      for (int size = 1; size <= std::min(largest_of_threads(), 4); ++size) {
        // Cuts messages small too, in the group that sends most of them.
        for (const std::size_t most : {std::size_t{1} << 30U, std::size_t{1000}}) {
          if (most == 1000 && size != 3) continue;
          WireMedium medium(most);
          INFO(test.name << ", " << size << " members, messages up to " << most);
          CHECK(test.run(medium, size) == "");
        }
      }
    }
  }
}

TEST_CASE("c10d carries out every algorithm", "[fabric]") {
  for (const Test& test : algorithm_contract()) {
    SECTION(test.name) {
      WireMedium medium(std::size_t{1} << 30U);
      INFO(test.name << ", 3 members");
      CHECK(test.run(medium, 3) == "");
    }
  }
}

TEST_CASE("c10d: a dead member ends the call at once, by its rank", "[fabric]") {
  const auto wires = std::make_shared<Wires>();
  auto fabrics = fabrics_of(wires, 3);
  std::vector<std::byte> data(64);
  const auto pending = start_broadcast(*fabrics[0], data, Deadline::never());
  wires->kill(2);
  const Status ended = pending->wait();
  CHECK(ended.message() == "the connection to rank 12 failed: Connection closed by peer");
  CHECK(fabrics[0]->poisoned());
}

TEST_CASE("c10d: a silent member is named at the deadline, and no thread waits on for it", "[fabric]") {
  const auto wires = std::make_shared<Wires>();
  auto fabrics = fabrics_of(wires, 3);
  std::vector<std::byte> data(64);
  const auto deadline = Deadline::after(std::chrono::milliseconds(100));
  auto pending = start_broadcast(*fabrics[0], data, deadline);
  const Status ended = pending->wait();
  CHECK(ended.message().find("made no progress until its deadline, waiting for rank 12") !=
        std::string::npos);
  CHECK(fabrics[0]->poisoned());
  pending.reset();
  fabrics.clear();  // joins the threads
}

TEST_CASE("c10d: a call that is dropped leaves no thread behind", "[fabric]") {
  auto fabrics = fabrics_of(std::make_shared<Wires>(), 3);
  std::vector<std::byte> data(64);
  start_broadcast(*fabrics[0], data, Deadline::never()).reset();
  CHECK(fabrics[0]->poisoned());
  fabrics.clear();
}

}  // namespace
}  // namespace roundelay::contract

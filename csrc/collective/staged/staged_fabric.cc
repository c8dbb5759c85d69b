#include "collective/staged/staged_fabric.h"

#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "collective/call_watch.h"
#include "collective/check.h"
#include "collective/present.h"
#include "collective/staged/passage.h"

namespace roundelay::collective {
namespace {

using staged::Host;
using staged::Passage;

class StagedPending;

// What the calls of one member share. One thread at a time.
struct StagedState {
  StagedState(Fabric& cpu, GpuRuntime& runtime, int device, std::size_t piece_bytes)
      : host{cpu, runtime, device, piece_bytes}, name("staged " + std::string(cpu.name())) {}

  Host host;
  const std::string name;
  std::deque<StagedPending*> queue;  // calls in progress; only the first one moves
  Status poison;                     // the first cause; ok while the fabric works

  void fail(const Status& cause) {
    if (poison.ok()) poison = cause;
  }
};

class StagedPending final : public Pending {
 public:
  StagedPending(std::shared_ptr<StagedState> state, const Call& call)
      : state_(std::move(state)), call_(call), watch_(call_, state_->host.cpu.group()) {
    state_->queue.push_back(this);
  }
  // A call that is dropped before its end poisons the fabric: its peers wait for this member's part.
  ~StagedPending() override {
    if (done_) return;
    std::erase(state_->queue, this);
    state_->fail(watch_.dropped());
  }

  Result<bool> test() override {
    while (!done_) {
      if (!state_->poison.ok()) return state_->poison;
      StagedPending& first = *state_->queue.front();
      const Result<bool> over = first.advance();
      if (!over.ok()) {
        state_->fail(over.status());
      } else if (*over) {
        state_->queue.pop_front();
      } else if (Status why = interrupted(); !why.ok()) {
        state_->fail(why);
      } else {
        return false;
      }
    }
    return true;
  }

  [[nodiscard]] int waiting_for() const override { return crossing() ? crossing()->waiting_for() : -1; }
  [[nodiscard]] bool crowded() const override { return crossing() && crossing()->crowded(); }
  // Nothing rings when the device is done with a copy, and the next piece may wait for one.
  Nap idle(Backoff& backoff) override {
    Passage* const moving = this->moving();
    if (moving != nullptr && moving->moved()) backoff.reset();
    if (crossing() == nullptr) return backoff.next();
    return crossing()->idle(backoff).at_most(Backoff::kLongest);
  }

 private:
  // Of the first in the queue. True: it is over.
  Result<bool> advance() {
    if (!passage_) passage_.emplace(state_->host, call_);
    Result<bool> over = passage_->advance();
    done_ = over.ok() && *over;
    if (done_) passage_.reset();
    return over;
  }

  // The CPU's fabric looks after its own calls.
  Status interrupted() {
    if (crossing() != nullptr) return {};
    const Status why = watch_.interrupted(-1);
    const bool aborted = call_.abort != nullptr && call_.abort->raised();
    return why.ok() || aborted ? why : watch_.explain("waited for its GPU until its deadline", -1);
  }

  [[nodiscard]] Passage* moving() const {
    if (state_->queue.empty() || !state_->queue.front()->passage_) return nullptr;
    return &*state_->queue.front()->passage_;
  }
  [[nodiscard]] Pending* crossing() const { return moving() == nullptr ? nullptr : moving()->crossing(); }

  const std::shared_ptr<StagedState> state_;
  const Call call_;
  CallWatch watch_;
  mutable std::optional<Passage> passage_;
  bool done_ = false;
};

Result<RegionPtr> no_region(std::uint64_t /*key*/, std::size_t /*bytes*/) {
  return Status::unavailable("no memory of a GPU that its peers reach");
}

class StagedFabric final : public Fabric {
 public:
  explicit StagedFabric(std::shared_ptr<StagedState> state) : state_(std::move(state)) {}

  [[nodiscard]] std::string_view name() const override { return state_->name; }
  [[nodiscard]] const Group& group() const override { return state_->host.cpu.group(); }
  [[nodiscard]] bool any_thread() const override { return state_->host.cpu.any_thread(); }
  [[nodiscard]] bool poisoned() const override { return !state_->poison.ok() || state_->host.cpu.poisoned(); }
  void rouse() override { state_->host.cpu.rouse(); }
  [[nodiscard]] RegionMaker region_maker() const override { return no_region; }

  Result<std::unique_ptr<Pending>> start(const Call& call) override {
    if (!state_->poison.ok()) return state_->poison;
    ROUNDELAY_RETURN_IF_ERROR(check_call(call, group()));
    if (call.stream == nullptr && !is_absent(call, group().index)) {
      return Status::invalid(std::string(name_of(call.operation)) + ": the memory is not a GPU's");
    }
    if (call.abort != nullptr && call.abort->raised()) return call.abort->cause();
    auto pending = std::make_unique<StagedPending>(state_, call);
    // What can move moves now; what is wrong, the first test says.
    static_cast<void>(pending->test());
    return std::unique_ptr<Pending>(std::move(pending));
  }

 private:
  const std::shared_ptr<StagedState> state_;
};

}  // namespace

std::unique_ptr<Fabric> make_staged_fabric(Fabric& cpu, GpuRuntime& runtime, int device,
                                           std::size_t piece_bytes) {
  const std::size_t whole = (piece_bytes + staged::kElement - 1) / staged::kElement * staged::kElement;
  return std::make_unique<StagedFabric>(std::make_shared<StagedState>(cpu, runtime, device, whole));
}

}  // namespace roundelay::collective

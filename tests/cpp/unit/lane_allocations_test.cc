// Counts what a lane allocates for an operation that repeats.
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collective/fabric.h"
#include "complete/handles.h"
#include "execute/completer.h"
#include "execute/lane.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/allocations.h"

namespace roundelay::execute {
namespace {

using Floats = std::vector<float>;

// Ends each call at once. It takes no scattered tensors, so that the lane packs them.
class InstantFabric final : public collective::Fabric {
 public:
  [[nodiscard]] std::string_view name() const override { return "instant"; }
  [[nodiscard]] const Group& group() const override { return group_; }
  Result<std::unique_ptr<collective::PendingCall>> start(const collective::Call&) override {
    return collective::finished_call();
  }
  [[nodiscard]] bool any_thread() const override { return true; }
  [[nodiscard]] bool poisoned() const override { return false; }
  [[nodiscard]] std::span<collective::Fabric* const> level_fabrics() override { return flat(); }

 private:
  const Group group_{0, {0}, 0};
};

// A lane of one rank, whose operations a lane step carries out.
struct Solo {
  explicit Solo(const LaneOptions& options)
      : lane(LaneId{}, one_fabric(std::make_unique<InstantFabric>()), completer, timeline, abort, options,
             {[](const wire::Stuck&) {}, [](const wire::Abort&) {}}) {}

  // Sums `tensors` of them in one order. Returns how often the lane allocated for it.
  std::size_t sum(std::size_t tensors) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < tensors; ++i) {
      submit::Entry entry;
      entry.request.name = std::to_string(i);
      entry.request.shape = {static_cast<std::int64_t>(data.size())};
      auto* const memory = reinterpret_cast<std::byte*>(data.data());
      entry.parts = {{DType::kFloat32, memory, memory, data.size()}};
      names.push_back(entry.request.name);
      handle = lane.table().add(std::move(entry), handles).value();
    }
    const negotiate::OrderedOperation ordered{std::move(names), {}, {}, false};
    lane.enqueue(++sequence, ordered);
    const std::size_t before = allocations();
    while (lane.has_work()) lane.step();
    const std::size_t made = allocations() - before;
    REQUIRE(handles.take_status(handle).value_or(Status::internal("not done")).ok());
    return made;
  }

  Floats data = Floats(100, 1.0F);
  complete::HandleTable handles;
  complete::Handle handle = 0;
  Completer completer{handles, [](const submit::Entry&, TimePoint) {}};
  timeline::Timeline timeline{0};
  AbortToken abort;
  std::uint64_t sequence = 0;
  Lane lane;
};

TEST_CASE("an allreduce that repeats allocates for its call, and for the lists of a packed batch",
          "[lane][batch]") {
  LaneOptions options;
  options.fusion_threshold = 1 << 20;
  Solo solo(options);
  for (int warm = 0; warm < 3; ++warm) {
    for (const std::size_t tensors : {1U, 3U}) static_cast<void>(solo.sum(tensors));
  }
  CHECK(solo.sum(1) == 1);  // the pending call
  CHECK(solo.sum(3) == 5);  // besides: the sizes, the layout, what to pack and what to unpack
}

}  // namespace
}  // namespace roundelay::execute

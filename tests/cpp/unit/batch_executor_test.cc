// Batches that are carried out without a lane: over the inproc fabric, stepped from one thread.
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "collective/inproc/hub.h"
#include "complete/handles.h"
#include "execute/batch_executor.h"
#include "execute/batch_queue.h"
#include "execute/completer.h"
#include "submit/table.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/in_time.h"

namespace roundelay::execute {
namespace {

using Floats = std::vector<float>;

constexpr std::size_t kThreshold = 1024;

// One member's table and queue, and the tensors in them.
struct Queued {
  explicit Queued(int members)
      : queue(std::vector<int>(static_cast<std::size_t>(members)), kThreshold, table, completer) {}

  Floats& add(const std::string& name, const Floats& values, Operation operation = Operation::kAllreduce,
              DeviceType device = DeviceType::kCpu) {
    Floats& tensor = tensors.emplace_back(values);
    submit::Entry entry;
    entry.request.name = name;
    entry.request.operation = operation;
    entry.request.device = device;
    entry.request.shape = {static_cast<std::int64_t>(tensor.size())};
    auto* memory = reinterpret_cast<std::byte*>(tensor.data());
    if (operation == Operation::kAllreduce) {
      entry.parts = {{DType::kFloat32, memory, memory, tensor.size()}};
    }
    REQUIRE(table.add(std::move(entry), handles).ok());
    return tensor;
  }
  void order(std::uint64_t sequence, std::vector<std::string> names) {
    queue.enqueue(sequence, {std::move(names), {}, {}, false});
  }

  std::deque<Floats> tensors;  // which stay where they are
  complete::HandleTable handles;
  submit::TensorTable table;
  Completer completer{handles, [](const submit::Entry&, TimePoint) {}};
  BatchQueue queue;
};

Group pair_of(int index) {
  Group group;
  group.ranks = {0, 1};
  group.index = index;
  return group;
}

struct Member {
  Member(const std::shared_ptr<collective::InprocHub>& hub, int index)
      : queued(2), executor(collective::make_inproc_fabric(hub, pair_of(index)), abort, options()) {}

  static LaneOptions options() {
    LaneOptions options;
    options.fusion_threshold = kThreshold;
    return options;
  }
  std::unique_ptr<Batch> begin() {
    auto batch = queued.queue.pop(false);
    REQUIRE(batch);
    REQUIRE(executor.prepare(*batch, false).ok());
    REQUIRE(executor.start(*batch).ok());
    return batch;
  }

  Queued queued;
  AbortToken abort;
  BatchExecutor executor;
};

TEST_CASE("two batches are under way at once, each with its own buffer", "[batch]") {
  const auto hub = std::make_shared<collective::InprocHub>(2);
  Member one(hub, 0), other(hub, 1);
  for (Member* member : {&one, &other}) {
    for (const char* name : {"a", "b", "c", "d"}) member->queued.add(name, Floats(8, 1.0F));
    member->queued.order(1, {"a", "b"});
    member->queued.order(2, {"c", "d"});
  }
  std::vector<std::pair<Member*, std::unique_ptr<Batch>>> under_way;
  for (Member* member : {&one, &other}) {
    for (int i = 0; i < 2; ++i) under_way.emplace_back(member, member->begin());
  }
  CHECK(under_way[0].second->fusion != under_way[1].second->fusion);
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  std::size_t done = 0;
  while (done < under_way.size()) {
    testing::expect_before(deadline);
    for (auto& [member, batch] : under_way) {
      if (!batch) continue;
      const Result<Progress> progress = member->executor.advance(*batch);
      REQUIRE(progress.ok());
      if (*progress != Progress::kDone) continue;
      CHECK(batch->reduced >= batch->started);
      batch.reset();
      ++done;
    }
  }
  for (Member* member : {&one, &other}) {
    for (const Floats& tensor : member->queued.tensors) CHECK(tensor == Floats(8, 2.0F));
  }
}

TEST_CASE("a batch that is abandoned after an abort leaves its entries to the caller", "[batch]") {
  const auto hub = std::make_shared<collective::InprocHub>(2);
  Member member(hub, 0);
  member.queued.add("a", Floats(8, 1.0F));
  member.queued.order(1, {"a"});
  const auto batch = member.begin();
  const Result<Progress> progress = member.executor.advance(*batch);
  REQUIRE(progress.ok());
  CHECK(*progress == Progress::kNone);  // the other member does not come
  member.abort.raise(Status::aborted("cause"));
  member.executor.abandon(*batch);
  CHECK(batch->pending == nullptr);
  CHECK(batch->entries.front()->unfinished == 1);
  CHECK(member.executor.fabric().poisoned());
  member.executor.close();
  member.executor.close();
}

TEST_CASE("a queue numbers the batches of an order and counts work until it is over", "[batch]") {
  Queued queued(2);
  queued.add("a", Floats(8, 1.0F));
  queued.add("large", Floats(kThreshold, 1.0F));
  queued.add("b", Floats(8, 1.0F));
  queued.order(7, {"a", "large"});
  queued.order(7, {"b"});
  for (const std::uint32_t index : {0U, 1U, 2U}) {
    const auto batch = queued.queue.pop(false);
    REQUIRE(batch);
    CHECK(batch->sequence == 7);
    CHECK(batch->index == index);
    CHECK(batch->ends_tickets == (index > 0));
  }
  CHECK(queued.queue.pop(false) == nullptr);
  CHECK(queued.queue.has_work());
  queued.queue.forget(3);
  CHECK_FALSE(queued.queue.has_work());
}

TEST_CASE("a batch on a GPU is not taken where only the host's are wanted", "[batch]") {
  Queued queued(2);
  queued.add("gpu", Floats(8, 1.0F), Operation::kAllreduce, DeviceType::kGpu);
  queued.add("host", Floats(8, 1.0F));
  queued.order(1, {"gpu"});
  queued.order(2, {"host"});
  CHECK(queued.queue.pop(true) == nullptr);
  const auto first = queued.queue.pop(false);
  REQUIRE(first);
  CHECK(first->on_gpu());
  CHECK(queued.queue.pop(true) != nullptr);
}

TEST_CASE("a join is complete when it is ordered, and unknown names are skipped", "[batch]") {
  Queued queued(2);
  queued.add("", {}, Operation::kJoin);
  queued.order(1, {submit::kJoinName, "never submitted"});
  CHECK_FALSE(queued.queue.has_work());
  CHECK(queued.table.in_flight() == 0);
}

TEST_CASE("members that take part tell those that skip how many batches come", "[batch]") {
  Queued present(3), absent(3);
  present.add("a", Floats(8, 1.0F));
  present.add("large", Floats(kThreshold, 1.0F));
  present.queue.enqueue(1, {{"a", "large"}, {}, {2}, false});
  absent.queue.enqueue(1, {{}, {}, {2}, true});
  const Batches batches = present.queue.take_all();
  REQUIRE(batches.size() == 3);
  CHECK(batches.front()->entries.empty());
  CHECK(batches.front()->following == 2);
  CHECK(batches.back()->absent == std::vector<int>{2});
  const Batches skipped = absent.queue.take_all();
  REQUIRE(skipped.size() == 1);
  CHECK(skipped.front()->describe() == "an operation that members skip after join()");
}

}  // namespace
}  // namespace roundelay::execute

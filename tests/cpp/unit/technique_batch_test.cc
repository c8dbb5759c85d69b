// Batches whose bucket takes a technique, carried out without a lane: memory, aborts between its calls.
#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "collective/inproc/hub.h"
#include "execute/batch_executor.h"
#include "execute/lane_recorder.h"
#include "execute/operations/operations.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/in_time.h"
#include "tests/cpp/techniques.h"
#include "tests/cpp/timeline_spans.h"
#include "tests/cpp/unit/allocations.h"

namespace roundelay::execute {
namespace {

using compress::BucketTechnique;
using compress::TechniquePtr;

constexpr std::size_t kCount = 1000;

// Makes kCalls allreduces of scratch memory, and counts those that have ended.
class Calls final : public compress::Technique {
 public:
  static constexpr int kCalls = 3;
  explicit Calls(int& ended) : ended_(ended) {}
  [[nodiscard]] std::string text() const override { return "calls"; }
  [[nodiscard]] std::size_t state_bytes(std::size_t, DType, std::span<const int>) const override { return 0; }
  collective::Task run(compress::Workspace& workspace, compress::Bucket bucket) const override {
    const Result<std::byte*> memory = workspace.scratch(bucket.buffer.bytes);
    if (!memory.ok()) co_return memory.status();
    std::memset(*memory, 0, bucket.buffer.bytes);
    for (int i = 0; i < kCalls; ++i) {
      auto allreduce = compress::allreduce_of({*memory, 0, bucket.buffer.bytes}, bucket, workspace);
      allreduce.algorithm = "pairwise";  // it ends on no member before the other one has tested it
      collective::Call call = allreduce;
      co_await collective::Calling(workspace.fabric(), call);
      ++ended_;
    }
    co_return Status{};
  }
  compress::Residual residual(std::size_t, const Scale&, const compress::Place&) const override { return {}; }

 private:
  int& ended_;
};

// A bucket of ones, and batches of it.
struct Bucket {
  explicit Bucket(TechniquePtr of)
      : technique(std::move(of)),
        state(technique->state_bytes(kCount, DType::kFloat32, {}) / sizeof(double) + 1) {
    taken->technique = technique;
    taken->state = {reinterpret_cast<std::byte*>(state.data()),
                    technique->state_bytes(kCount, DType::kFloat32, {})};
    taken->parameters = {{0, kCount}};
    taken->outcome = &outcome;
  }
  [[nodiscard]] std::unique_ptr<Batch> batch(bool dense = false, std::vector<int> absent = {}) {
    auto entry = std::make_shared<submit::Entry>();
    entry->request.name = "b";
    entry->request.operation = Operation::kAllreduce;
    entry->request.shape = {static_cast<std::int64_t>(kCount)};
    auto* const memory = reinterpret_cast<std::byte*>(elements.data());
    entry->parts = {{DType::kFloat32, memory, memory, kCount}};
    if (!dense) entry->technique = taken;
    entry->unfinished = 1;
    auto made = std::make_unique<Batch>();
    made->steps = steps_of(Operation::kAllreduce);
    made->tensors = {{entry.get(), 0}};
    made->entries = {entry};
    made->absent = std::move(absent);
    return made;
  }

  const TechniquePtr technique;
  std::vector<float> elements = std::vector<float>(kCount, 1.0F);
  std::vector<double> state;
  compress::TechniqueOutcome outcome;
  const std::shared_ptr<BucketTechnique> taken = std::make_shared<BucketTechnique>();
};

Group group_of(int size, int index) {
  Group group;
  for (int rank = 0; rank < size; ++rank) group.ranks.push_back(rank);
  group.index = index;
  return group;
}

struct Member {
  Member(const std::shared_ptr<collective::InprocHub>& hub, int size, int index)
      : executor(collective::make_inproc_fabric(hub, group_of(size, index)), abort, {}) {}
  void begin(Batch& batch) {
    REQUIRE(executor.prepare(batch, false).ok());
    REQUIRE(executor.start(batch).ok());
  }
  // Advances until the batch is done.
  void end(Batch& batch) {
    for (Progress progress = Progress::kNone; progress != Progress::kDone;) {
      const Result<Progress> next = executor.advance(batch);
      REQUIRE(next.ok());
      progress = *next;
    }
  }

  AbortToken abort;
  BatchExecutor executor;
};

// Carries out batches of all members, from one thread.
void run_all(std::vector<std::unique_ptr<Member>>& members, std::vector<std::unique_ptr<Batch>>& batches) {
  for (std::size_t m = 0; m < members.size(); ++m) members[m]->begin(*batches[m]);
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  std::vector<bool> done(members.size());
  while (std::find(done.begin(), done.end(), false) != done.end()) {
    testing::expect_before(deadline);
    for (std::size_t m = 0; m < members.size(); ++m) {
      if (done[m]) continue;
      const Result<Progress> progress = members[m]->executor.advance(*batches[m]);
      REQUIRE(progress.ok());
      done[m] = *progress == Progress::kDone;
    }
  }
}

TEST_CASE("a technique that repeats allocates what its calls do, and nothing else", "[batch][technique]") {
  Member member(std::make_shared<collective::InprocHub>(1), 1, 0);
  const auto allocated = [&](Bucket& bucket, bool dense) {
    const auto batch = bucket.batch(dense);
    const std::size_t before = allocations();
    member.begin(*batch);
    member.end(*batch);
    return allocations() - before;
  };
  Bucket dense(technique_of("negate"));
  for (int warm = 0; warm < 3; ++warm) static_cast<void>(allocated(dense, true));
  const std::vector<std::pair<std::string, std::size_t>> calls = {
      {"negate", 1}, {"cyclic", 1}, {"csc:keep=1", 1}, {"csc:chunk=100,keep=0.3", 2}};
  for (const auto& [text, number] : calls) {
    Bucket bucket(technique_of(text));
    for (int warm = 0; warm < 3; ++warm) static_cast<void>(allocated(bucket, false));
    CHECK(allocated(bucket, false) == number * allocated(dense, true));
    bucket.taken->flush = true;
    static_cast<void>(allocated(bucket, false));
    CHECK(allocated(bucket, false) == allocated(dense, true));
  }
}

// The names of a technique's own work and of its calls, with how often the timeline has them.
struct Shown {
  std::string text;
  std::vector<std::string> work;
  std::vector<std::pair<std::string, int>> calls;
};

TEST_CASE("the timeline shows the work and the calls of a technique, one after the other",
          "[batch][technique]") {
  const Shown shown = GENERATE(  // "allreduce" is the operation, too
      Shown{"csc:chunk=100,keep=0.3",
            {"norms", "selection", "gather", "scatter"},
            {{"norms", 1}, {"allreduce", 2}}},
      Shown{"topk:density=0.3", {"selection", "sum"}, {{"gather of pairs", 1}, {"allreduce", 1}}},
      Shown{"power_sgd:columns=10",
            {"projection", "projection back", "expansion"},
            {{"left factors", 1}, {"right factors", 1}, {"allreduce", 1}}});
  timeline::Timeline timeline(0);
  timeline.start(false);
  LaneRecorder recorder(timeline, {}, false);
  Member member(std::make_shared<collective::InprocHub>(1), 1, 0);
  Bucket bucket(technique_of(shown.text));
  const auto batch = bucket.batch();
  batch->recorder = recorder.span_recorder(*batch);
  REQUIRE(batch->recorder == &recorder);
  member.begin(*batch);
  member.end(*batch);
  recorder.record(*batch);
  const std::string text = timeline.drain();
  const auto count = [&](const std::string& name, timeline::Row row) {
    const std::string wanted = "\"name\":\"" + name + "\"",
                      mine = "\"tid\":" + std::to_string(static_cast<int>(row));
    std::istringstream in(text);
    int found = 0;
    for (std::string line; std::getline(in, line);)
      if (line.find(wanted) != std::string::npos && line.find(mine) != std::string::npos) ++found;
    return found;
  };
  INFO(text);
  for (const std::string& work : shown.work) CHECK(count(work, timeline::Row::kCopy) == 1);
  for (const auto& [call, times] : shown.calls) CHECK(count(call, timeline::Row::kCollective) == times);
  for (const timeline::Row row : {timeline::Row::kCopy, timeline::Row::kCollective}) {
    std::vector<Span> all = spans(text, row);
    if (row == timeline::Row::kCollective) {
      const Span whole = all.back();  // the operation, which has the calls in it
      all.pop_back();
      REQUIRE((whole.begin <= all.front().begin && all.back().end <= whole.end + 0.002));
    }
    for (std::size_t i = 1; i < all.size(); ++i) CHECK(all[i - 1].end <= all[i].begin + 0.002);
  }
}

TEST_CASE("two techniques are under way at once, each with its own memory", "[batch][technique]") {
  Member member(std::make_shared<collective::InprocHub>(1), 1, 0);
  const TechniquePtr cyclic = technique_of("cyclic:parts=1");
  Bucket one(cyclic), other(cyclic);
  std::fill(other.elements.begin(), other.elements.end(), 2.0F);
  for (int step = 0; step < 3; ++step) {
    const auto first = one.batch(), second = other.batch();
    REQUIRE(member.executor.prepare(*first, false).ok());
    REQUIRE(member.executor.prepare(*second, false).ok());
    for (Batch* batch : {first.get(), second.get()}) {
      REQUIRE(member.executor.start(*batch).ok());
      member.end(*batch);
    }
    CHECK(one.elements == std::vector<float>(kCount, 1.0F));
    CHECK(other.elements == std::vector<float>(kCount, 2.0F));
  }
}

TEST_CASE("a technique does not apply while a member is absent", "[batch][technique]") {
  const auto hub = std::make_shared<collective::InprocHub>(2);
  std::vector<std::unique_ptr<Member>> members;
  for (int m = 0; m < 2; ++m) members.push_back(std::make_unique<Member>(hub, 2, m));
  Bucket bucket(technique_of("cyclic"));
  const std::vector<double> state = bucket.state;
  std::vector<std::unique_ptr<Batch>> batches;
  batches.push_back(bucket.batch(false, {1}));
  Bucket of_absent(technique_of("negate"));
  batches.push_back(of_absent.batch(true, {1}));
  run_all(members, batches);
  CHECK(bucket.elements == std::vector<float>(kCount, 1.0F));
  CHECK(bucket.state == state);
  CHECK_FALSE(bucket.outcome.applied);
}

TEST_CASE("an abort in any call of a technique ends it with the first cause", "[batch][technique]") {
  const int calls = GENERATE(0, 1, 2);
  const auto hub = std::make_shared<collective::InprocHub>(2);
  Member member(hub, 2, 0), late(hub, 2, 1);
  int ended = 0, ended_late = 0;
  Bucket bucket(std::make_shared<const Calls>(ended)), of_late(std::make_shared<const Calls>(ended_late));
  const auto batch = bucket.batch(), batch_of_late = of_late.batch();
  member.begin(*batch);
  if (calls > 0) late.begin(*batch_of_late);
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (ended < calls) {
    testing::expect_before(deadline);
    REQUIRE(member.executor.advance(*batch).ok());
    if (ended_late < calls) REQUIRE(late.executor.advance(*batch_of_late).ok());
  }
  REQUIRE(ended == calls);
  hub->silence(1);  // the other member does not come to the next call
  for (Member* one : {&member, &late}) one->abort.raise(Status::aborted("the first cause"));
  const Result<Progress> progress = member.executor.advance(*batch);
  CHECK(progress.status() == Status::aborted("the first cause"));
  member.executor.abandon(*batch);
  if (calls > 0) late.executor.abandon(*batch_of_late);
  CHECK(batch->pending == nullptr);
  CHECK_FALSE(batch->task);
  CHECK(batch->entries.front()->unfinished == 1);
  CHECK_FALSE(bucket.outcome.applied);
  CHECK(ended == calls);
  CHECK(member.executor.fabric().poisoned());
  member.executor.close();
}

}  // namespace
}  // namespace roundelay::execute

// Sessions whose ranks reduce buckets by techniques.
#include <array>
#include <random>

#include "tests/cpp/catch.h"
#include "tests/cpp/contract/inproc_levels.h"
#include "tests/cpp/contract/locking_world.h"
#include "tests/cpp/contract/technique_bucket.h"
#include "tests/cpp/contract/technique_errors.h"
#include "tests/cpp/contract/technique_join.h"
#include "tests/cpp/techniques.h"

namespace roundelay::contract {
namespace {

using compress::Bucket;
using compress::TechniquePtr;
using compress::Workspace;
using runtime::Session;

// The gradient of an element in a step: a whole number that both sides compute.
float gradient(int rank, int step, std::size_t i) {
  return static_cast<float>(
      static_cast<int>((i * 31 + static_cast<std::size_t>(step) * 17 + static_cast<std::size_t>(rank) * 7) %
                       101) -
      50);
}

TEST_CASE("buckets by negate are sums and averages", "[session][technique]") {
  const int size = GENERATE(1, 2, 3, 4);
  SessionWorld world(size);
  world.run([size](Session& session, int rank) -> std::string {
    constexpr std::size_t kCount = 1001;
    TechniqueBucket bucket(session, technique_of("negate"), kCount);
    if (!bucket.ok().ok()) return bucket.ok().message();
    for (int step = 0; step < 20; ++step) {
      const bool average = step % 2 == 1;
      for (std::size_t i = 0; i < kCount; ++i) bucket.elements()[i] = gradient(rank, step, i);
      const Status status = bucket.run("b", average ? ReduceOp::kAverage : ReduceOp::kSum);
      if (!status.ok()) return status.message();
      if (!bucket.outcome().applied) return "the technique did not apply";
      if (bucket.outcome().called_bytes != kCount * sizeof(float)) return "gave another number of bytes";
      for (std::size_t i = 0; i < kCount; ++i) {
        double sum = 0;
        for (int r = 0; r < size; ++r) sum += static_cast<double>(gradient(r, step, i));
        const auto expected = static_cast<float>(average ? sum / size : sum);
        if (bucket.elements()[i] != expected) return "element " + std::to_string(i) + " is wrong";
      }
    }
    return {};
  });
  world.shutdown();
}

// What a rank got in each step, and what it kept.
struct Course {
  std::vector<std::vector<float>> results;
  std::vector<float> kept;
};

TEST_CASE("several buckets by cyclic are under way at once, and nothing is lost", "[session][technique]") {
  constexpr std::size_t kCount = 2049;
  constexpr int kBuckets = 4, kSteps = 25;
  const int size = GENERATE(1, 2, 3, 4);
  const bool two_nodes = GENERATE(false, true);
  if (two_nodes && size != 4) return;
  const TwoFabrics fabrics(2, 2);
  SessionWorld world(size, {}, [&](runtime::SessionParts& parts) {
    if (two_nodes) parts.fabrics = fabrics.of(parts.rank_info.rank);
  });
  std::vector<std::array<Course, kBuckets>> courses(static_cast<std::size_t>(size));
  world.run([&](Session& session, int rank) -> std::string {
    const TechniquePtr cyclic = technique_of("cyclic:parts=3");
    std::vector<std::unique_ptr<TechniqueBucket>> buckets;
    for (std::uint64_t b = 0; b < kBuckets; ++b) {
      buckets.push_back(std::make_unique<TechniqueBucket>(session, cyclic, kCount, b + 1));
      if (!buckets.back()->ok().ok()) return buckets.back()->ok().message();
    }
    for (int step = 0; step < kSteps; ++step) {
      const bool flush = step % 8 == 6;
      for (int b = 0; b < kBuckets; ++b) {
        TechniqueBucket& bucket = *buckets[static_cast<std::size_t>(b)];
        for (std::size_t i = 0; i < kCount; ++i)
          bucket.elements()[i] = gradient(rank, step * kBuckets + b, i);
        const Status status = bucket.start("b" + std::to_string(b), ReduceOp::kSum, flush);
        if (!status.ok()) return status.message();
      }
      session.end_linger();
      for (std::size_t b = 0; b < kBuckets; ++b) {
        if (const Status status = buckets[b]->finish(); !status.ok()) return status.message();
        if (!buckets[b]->outcome().applied) return "the technique did not apply";
        const bool all = buckets[b]->outcome().called_bytes == kCount * sizeof(float);
        if (all != flush) return "gave another number of bytes";
        const Bytes state = buckets[b]->state();
        if (flush && state != Bytes(state.size())) return "the flush has left state";
        courses[static_cast<std::size_t>(rank)][b].results.push_back(buckets[b]->read());
      }
    }
    for (std::size_t b = 0; b < kBuckets; ++b) {
      std::vector<float>& kept = courses[static_cast<std::size_t>(rank)][b].kept;
      kept.resize(kCount);
      const Bytes state = buckets[b]->state();
      std::memcpy(kept.data(), state.data() + state.size() - kCount * sizeof(float), kCount * sizeof(float));
    }
    return {};
  });
  world.shutdown();
  for (std::size_t b = 0; b < kBuckets; ++b) {
    for (const auto& of_rank : courses) REQUIRE(of_rank[b].results == courses.front()[b].results);
    for (std::size_t i = 0; i < kCount; ++i) {
      double came = 0, sent = 0;
      for (int step = 0; step < kSteps; ++step) {
        for (int rank = 0; rank < size; ++rank)
          came += static_cast<double>(gradient(rank, step * kBuckets + static_cast<int>(b), i));
        sent += static_cast<double>(courses.front()[b].results[static_cast<std::size_t>(step)][i]);
      }
      for (const auto& of_rank : courses) sent += static_cast<double>(of_rank[b].kept[i]);
      REQUIRE(sent == came);
    }
  }
}

TEST_CASE("while a rank has joined, buckets go densely and keep their state", "[session][technique][join]") {
  constexpr std::size_t kCount = 100;
  const TechniquePtr cyclic = technique_of("cyclic:parts=4");
  require_join_keeps_state(cyclic, kCount, [](TechniqueBucket& bucket) -> std::string {
    if (std::string wrong = apply_to_ones(bucket, kCount); !wrong.empty()) return wrong;
    // The second quarter goes now: the gradients of two ranks in two steps.
    float sum = 0;
    for (const float one : bucket.read()) sum += one;
    return sum == 2.0F * 2 * 25 ? "" : "sent " + std::to_string(sum);
  });
}

TEST_CASE("techniques repeat under a schedule lock, and a flush in between", "[session][technique][lock]") {
  constexpr std::size_t kCount = 600;
  constexpr int kSize = 2, kSteps = 60;
  LockingWorld world(kSize, one_by_one());
  world.run([](Session& session, int) -> std::string {
    TechniqueBucket first(session, technique_of("cyclic:parts=2"), kCount, 1);
    TechniqueBucket second(session, technique_of("negate"), kCount, 2);
    for (TechniqueBucket* bucket : {&first, &second})
      if (!bucket->ok().ok()) return bucket->ok().message();
    double sent = 0;
    for (int step = 0; step < kSteps; ++step) {
      const bool flush = step % 20 == 19;
      for (TechniqueBucket* bucket : {&first, &second}) {
        std::fill_n(bucket->elements(), kCount, 1.0F);
        const Status status = bucket->start(bucket == &first ? "a" : "b", ReduceOp::kSum, flush);
        if (!status.ok()) return status.message();
      }
      session.end_linger();
      for (TechniqueBucket* bucket : {&first, &second}) {
        if (const Status status = bucket->finish(); !status.ok()) return status.message();
        if (!bucket->outcome().applied) return "the technique did not apply";
      }
      for (const float one : first.read()) sent += static_cast<double>(one);
      if (flush && sent != static_cast<double>(kSize) * kCount * (step + 1)) return "gradients were lost";
      if (second.read() != std::vector<float>(kCount, 2.0F)) return "a wrong sum";
    }
    return {};
  });
  CHECK(world.count(0, "locked_operations") > 0);
  world.shutdown();
}

// Makes three allreduces of the bucket.
class ManyCalls final : public compress::Technique {
 public:
  [[nodiscard]] std::string text() const override { return "many"; }
  [[nodiscard]] std::size_t state_bytes(std::size_t, DType, std::span<const int>) const override { return 0; }
  collective::Task run(Workspace& workspace, Bucket bucket) const override {
    const Result<std::byte*> memory = workspace.scratch(bucket.buffer.bytes);
    if (!memory.ok()) co_return memory.status();
    std::memset(*memory, 0, bucket.buffer.bytes);
    for (int i = 0; i < 3; ++i) {
      collective::Call call = compress::allreduce_of({*memory, 0, bucket.buffer.bytes}, bucket, workspace);
      co_await collective::Calling(workspace.fabric(), call);
    }
    co_return Status{};
  }
  compress::Residual residual(std::size_t, const Scale&, const compress::Place&) const override { return {}; }
};

TEST_CASE("a rank that dies in any call of a technique is named, and nothing hangs",
          "[session][technique][slow]") {
  require_the_dead_is_named(std::make_shared<const ManyCalls>(), GENERATE(0, 1, 2), GENERATE(false, true));
}

TEST_CASE("ranks whose techniques differ get both texts, and the job goes on", "[session][technique]") {
  require_both_texts(technique_of("cyclic:parts=4"), technique_of("cyclic:parts=8"));
}

}  // namespace
}  // namespace roundelay::contract

// Sessions whose ranks reduce buckets by topk: flat and over two levels, with ranks that die, differ or join.
#include <array>
#include <random>

#include "compress/registry.h"
#include "compress/shards.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/inproc_levels.h"
#include "tests/cpp/contract/session_trip.h"
#include "tests/cpp/contract/technique_bucket.h"
#include "tests/cpp/contract/technique_errors.h"

namespace roundelay::contract {
namespace {

using compress::TechniquePtr;
using runtime::Session;

TechniquePtr technique(const std::string& text) { return compress::make_technique(text).value(); }

// The gradients of a bucket in a step: whole numbers.
std::vector<float> gradients(int rank, int step, std::size_t bucket, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank * 1000 + step) * 7 + static_cast<unsigned>(bucket));
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 201) - 100);
  return values;
}

// What a rank got in each step, and kept of its shard.
struct Course {
  std::vector<std::vector<float>> results;
  std::vector<float> kept;
};

TEST_CASE("buckets by topk lose nothing, two at once on two levels", "[session][technique][topk]") {
  constexpr std::size_t kCount = 3001, kBuckets = 3;
  constexpr int kSteps = 50;
  const auto [nodes, members] = GENERATE(std::pair(1, 3), std::pair(2, 2), std::pair(3, 2));
  const std::string more = GENERATE(",select=radix", ",index_bits=16");
  const int size = nodes * members;
  const bool two_levels = nodes > 1;
  const TwoTracks tracks(nodes, members);
  SessionWorld world(size, {}, [&](runtime::SessionParts& parts) {
    if (two_levels) parts.fabrics = tracks.of(parts.rank_info.rank);
  });
  std::vector<std::array<Course, kBuckets>> courses(static_cast<std::size_t>(size));
  world.run([&](Session& session, int rank) -> std::string {
    std::vector<std::unique_ptr<TechniqueBucket>> buckets;
    for (std::size_t b = 0; b < kBuckets; ++b) {
      const std::string text = "topk:density=0.05,before=" + std::to_string(kCount * b) + more;
      buckets.push_back(std::make_unique<TechniqueBucket>(session, technique(text), kCount, b + 1));
      if (!buckets.back()->ok().ok()) return buckets.back()->ok().message();
    }
    for (int step = 0; step < kSteps; ++step) {
      for (std::size_t b = 0; b < kBuckets; ++b) {
        const std::vector<float> came = gradients(rank, step, b, kCount);
        std::copy(came.begin(), came.end(), buckets[b]->elements());
        const Status status = buckets[b]->start("b" + std::to_string(b), ReduceOp::kSum, step % 20 == 13);
        if (!status.ok()) return status.message();
      }
      session.flush();
      for (std::size_t b = 0; b < kBuckets; ++b) {
        if (const Status status = buckets[b]->finish(); !status.ok()) return status.message();
        if (!buckets[b]->outcome().applied) return "the technique did not apply";
        courses[static_cast<std::size_t>(rank)][b].results.push_back(buckets[b]->read());
      }
    }
    for (std::size_t b = 0; b < kBuckets; ++b) {
      const int place = two_levels ? rank / nodes : 0;
      const compress::Slice shard = compress::shard_of(kCount, {place, two_levels ? members : 1});
      std::vector<float>& kept = courses[static_cast<std::size_t>(rank)][b].kept;
      kept.resize(kCount);
      std::memcpy(kept.data() + shard.first, buckets[b]->state().data(), shard.count * sizeof(float));
    }
    return {};
  });
  world.shutdown();
  for (std::size_t b = 0; b < kBuckets; ++b) {
    std::vector<double> balance(kCount);
    for (int rank = 0; rank < size; ++rank) {
      const Course& course = courses[static_cast<std::size_t>(rank)][b];
      REQUIRE(course.results == courses.front()[b].results);
      for (int step = 0; step < kSteps; ++step) {
        const std::vector<float> came = gradients(rank, step, b, kCount);
        for (std::size_t i = 0; i < kCount; ++i) {
          balance[i] += static_cast<double>(came[i]);
          if (rank == 0) balance[i] -= static_cast<double>(course.results[static_cast<std::size_t>(step)][i]);
        }
      }
      for (std::size_t i = 0; i < kCount; ++i) balance[i] -= static_cast<double>(course.kept[i]);
    }
    REQUIRE(balance == std::vector<double>(kCount));
  }
}

TEST_CASE("a rank that dies before the gather of topk is named", "[session][technique][topk]") {
  require_the_dead_is_named(technique("topk:density=0.25"), 0, GENERATE(false, true));
}

TEST_CASE("ranks whose topk differs get both texts before anything is sent", "[session][technique][topk]") {
  require_both_texts(technique("topk:density=0.01"), technique("topk:density=0.01,index_bits=16"));
}

TEST_CASE("while a rank has joined, topk keeps its state and its run", "[session][technique][topk][join]") {
  constexpr std::size_t kCount = 80;
  SessionWorld world(2);
  world.run([](Session& session, int rank) -> std::string {
    TechniqueBucket bucket(session, technique("topk:density=0.25,select=radix"), kCount);
    if (!bucket.ok().ok()) return bucket.ok().message();
    const auto step = [&] {
      std::fill_n(bucket.elements(), kCount, 1.0F);
      return bucket.run("b");
    };
    if (const Status status = step(); !status.ok()) return status.message();
    if (!bucket.outcome().applied) return "the technique did not apply before";
    const Bytes state = bucket.state();
    for (int i = 0; rank == 1 && i < 3; ++i) {
      if (const Status status = step(); !status.ok()) return status.message();
      if (bucket.outcome().applied) return "the technique applied while rank 0 had joined";
      if (bucket.read() != std::vector<float>(kCount, 1.0F)) return "wrong values alone";
    }
    if (const auto last = join(session); !last.ok()) return last.status().message();
    if (bucket.state() != state) return "the state has changed";
    if (const Status status = step(); !status.ok()) return status.message();
    for (std::size_t i = 0; i < kCount; ++i) {  // the first quarter went before, and the next one has waited
      const float expected = i >= kCount / 4 && i < kCount / 2 ? 4.0F : 0.0F;
      if (bucket.elements()[i] != expected) return "a wrong sum at " + std::to_string(i);
    }
    return {};
  });
  world.shutdown();
}

}  // namespace
}  // namespace roundelay::contract

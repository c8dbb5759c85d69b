// Sessions whose ranks reduce buckets by csc: flat and over two levels, with ranks that die, differ or join.
#include <array>
#include <random>

#include "compress/registry.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/inproc_levels.h"
#include "tests/cpp/contract/technique_bucket.h"
#include "tests/cpp/contract/technique_errors.h"
#include "tests/cpp/contract/technique_join.h"

namespace roundelay::contract {
namespace {

using compress::TechniquePtr;
using runtime::Session;

TechniquePtr technique(const std::string& text) { return compress::make_technique(text).value(); }

// The gradients of a bucket in a step: whole numbers, some chunks larger than others.
std::vector<float> gradients(int rank, int step, std::size_t bucket, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank * 1000 + step) * 7 + static_cast<unsigned>(bucket));
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(static_cast<int>(random() % 201) - 100) * (i / 100 % 3 == 0 ? 4.0F : 1.0F);
  return values;
}

// What a rank got in each step and kept, and which chunks it sent.
struct Course {
  std::vector<std::vector<float>> results;
  std::vector<std::vector<std::uint32_t>> sent;
  std::vector<float> kept;
};

void require_balance(const std::vector<const Course*>& ranks, std::size_t bucket, std::size_t count) {
  for (const Course* one : ranks) {
    REQUIRE(one->results == ranks.front()->results);
    REQUIRE(one->sent == ranks.front()->sent);
  }
  std::vector<double> balance(count);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (std::size_t step = 0; step < ranks[r]->results.size(); ++step) {
      const std::vector<float> came = gradients(static_cast<int>(r), static_cast<int>(step), bucket, count);
      for (std::size_t i = 0; i < count; ++i) {
        balance[i] += static_cast<double>(came[i]);
        if (r == 0) balance[i] -= static_cast<double>(ranks[0]->results[step][i]);
      }
    }
    for (std::size_t i = 0; i < count; ++i) balance[i] -= static_cast<double>(ranks[r]->kept[i]);
  }
  REQUIRE(balance == std::vector<double>(count));
}

TEST_CASE("buckets by csc lose nothing, and all ranks choose the same chunks", "[session][technique][csc]") {
  constexpr std::size_t kCount = 3001, kBuckets = 3;
  constexpr int kSteps = 50;
  const int size = GENERATE(1, 2, 3, 4);
  const bool two_nodes = GENERATE(false, true);
  if (two_nodes && size != 4) return;
  const std::string norms = GENERATE("same", "previous");
  const TwoFabrics fabrics(2, 2);
  SessionWorld world(size, {}, [&](runtime::SessionParts& parts) {
    if (two_nodes) parts.fabrics = fabrics.of(parts.rank_info.rank);
  });
  std::vector<std::array<Course, kBuckets>> courses(static_cast<std::size_t>(size));
  world.run([&](Session& session, int rank) -> std::string {
    std::vector<std::unique_ptr<TechniqueBucket>> buckets;
    std::vector<TechniquePtr> techniques;
    for (std::size_t b = 0; b < kBuckets; ++b) {
      techniques.push_back(
          technique("csc:chunk=100,keep=0.1,norms=" + norms + ",before=" + std::to_string(31 * b)));
      buckets.push_back(std::make_unique<TechniqueBucket>(session, techniques.back(), kCount, b + 1));
      if (!buckets.back()->ok().ok()) return buckets.back()->ok().message();
    }
    for (int step = 0; step < kSteps; ++step) {
      const bool flush = step % 20 == 13;
      for (std::size_t b = 0; b < kBuckets; ++b) {
        const std::vector<float> came = gradients(rank, step, b, kCount);
        std::copy(came.begin(), came.end(), buckets[b]->elements());
        const Status status = buckets[b]->start("b" + std::to_string(b), ReduceOp::kSum, flush);
        if (!status.ok()) return status.message();
      }
      session.end_linger();
      std::size_t chunks = 0;
      for (std::size_t b = 0; b < kBuckets; ++b) {
        if (const Status status = buckets[b]->finish(); !status.ok()) return status.message();
        if (!buckets[b]->outcome().applied) return "the technique did not apply";
        Course& course = courses[static_cast<std::size_t>(rank)][b];
        course.results.push_back(buckets[b]->read());
        course.sent.push_back(flush ? std::vector<std::uint32_t>() : buckets[b]->sent());
        chunks += course.sent.back().size();
      }
      if (!flush && (chunks < 8 || chunks > 10)) return "sent " + std::to_string(chunks) + " of 93 chunks";
    }
    for (std::size_t b = 0; b < kBuckets; ++b) {
      std::vector<float>& kept = courses[static_cast<std::size_t>(rank)][b].kept;
      kept.resize(kCount);
      std::memcpy(kept.data(), buckets[b]->state().data(), kCount * sizeof(float));
    }
    return {};
  });
  world.shutdown();
  for (std::size_t b = 0; b < kBuckets; ++b) {
    std::vector<const Course*> of_ranks;
    for (const auto& of_rank : courses) of_ranks.push_back(&of_rank[b]);
    require_balance(of_ranks, b, kCount);
  }
}

TEST_CASE("a rank that dies before or between the calls of csc is named", "[session][technique][csc]") {
  require_the_dead_is_named(technique("csc:chunk=8,keep=0.5"), GENERATE(0, 1), GENERATE(false, true));
}

TEST_CASE("ranks whose csc differs get both texts before anything is sent", "[session][technique][csc]") {
  require_both_texts(technique("csc:keep=0.1,chunk=8"), technique("csc:keep=0.2,chunk=8"));
}

TEST_CASE("while a rank has joined, csc keeps its state and its run", "[session][technique][csc][join]") {
  constexpr std::size_t kCount = 80;
  const TechniquePtr csc = technique("csc:keep=0.5,chunk=8,norms=previous");
  require_join_keeps_state(csc, kCount, [](TechniqueBucket& bucket) -> std::string {
    const std::vector<std::uint32_t> first = bucket.sent();
    if (std::string wrong = apply_to_ones(bucket, kCount); !wrong.empty()) return wrong;
    if (bucket.sent() != first) return "the norms of the last run did not choose";
    if (std::string wrong = apply_to_ones(bucket, kCount); !wrong.empty()) return wrong;
    return bucket.sent() != first ? "" : "the same chunks again, while others waited";
  });
}

}  // namespace
}  // namespace roundelay::contract

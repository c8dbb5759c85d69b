// Sessions over nodes whose ranks reduce buckets by a technique that keeps a part of each shard back.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "collective/levels/places.h"
#include "compress/registry.h"
#include "compress/shards.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/inproc_levels.h"
#include "tests/cpp/contract/session_trip.h"
#include "tests/cpp/contract/technique_bucket.h"

namespace roundelay::contract {

// The gradients of a bucket in a step: whole numbers.
inline std::vector<float> gradients_of(int rank, int step, std::size_t bucket, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank * 1000 + step) * 7 + static_cast<unsigned>(bucket));
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 201) - 100);
  return values;
}

// What a rank got in each step, and kept of its shard.
struct ShardCourse {
  std::vector<std::vector<float>> results;
  std::vector<float> kept;
};

// Returns a rank's place in these nodes; that of the only member if all are on one node, which has no levels.
inline compress::Place place_of(const collective::levels::Tree& tree, int rank) {
  const collective::levels::Parts& nodes = tree.front();
  if (nodes.size() == 1) return {};
  for (const std::vector<int>& node : nodes) {
    const auto found = std::ranges::find(node, rank);
    if (found == node.end()) continue;
    return {static_cast<int>(found - node.begin()), collective::levels::places_of(nodes),
            static_cast<int>(node.size())};
  }
  return {};
}

// Reduces three buckets of `count` elements in 50 steps, two at once, on the nodes of a tree of two levels.
// `text_of(b)` gives the technique of bucket b. All ranks must get the same bits, and what was sent and is
// kept must be all that came, within `tolerance` for each element.
template <class TextOf>
void require_nothing_is_lost(const collective::levels::Tree& tree, std::size_t count, TextOf text_of,
                             double tolerance) {
  constexpr std::size_t kBuckets = 3;
  constexpr int kSteps = 50;
  const int size = static_cast<int>(tree.back().front().size());
  const bool two_levels = tree.front().size() > 1;
  const TwoFabrics fabrics(tree);
  SessionWorld world(size, {}, [&](runtime::SessionParts& parts) {
    if (two_levels) parts.fabrics = fabrics.of(parts.rank_info.rank);
  });
  std::vector<std::array<ShardCourse, kBuckets>> courses(static_cast<std::size_t>(size));
  world.run([&](runtime::Session& session, int rank) -> std::string {
    std::vector<std::unique_ptr<TechniqueBucket>> buckets;
    for (std::size_t b = 0; b < kBuckets; ++b) {
      const compress::TechniquePtr technique = compress::make_technique(text_of(b)).value();
      buckets.push_back(std::make_unique<TechniqueBucket>(session, technique, count, b + 1));
      if (!buckets.back()->ok().ok()) return buckets.back()->ok().message();
    }
    for (int step = 0; step < kSteps; ++step) {
      for (std::size_t b = 0; b < kBuckets; ++b) {
        const std::vector<float> came = gradients_of(rank, step, b, count);
        std::copy(came.begin(), came.end(), buckets[b]->elements());
        const Status status = buckets[b]->start("b" + std::to_string(b), ReduceOp::kSum, step % 20 == 13);
        if (!status.ok()) return status.message();
      }
      session.end_linger();
      for (std::size_t b = 0; b < kBuckets; ++b) {
        if (const Status status = buckets[b]->finish(); !status.ok()) return status.message();
        if (!buckets[b]->outcome().applied) return "the technique did not apply";
        courses[static_cast<std::size_t>(rank)][b].results.push_back(buckets[b]->read());
      }
    }
    for (std::size_t b = 0; b < kBuckets; ++b) {
      const compress::Slice shard = compress::shard_of(count, place_of(tree, rank));
      std::vector<float>& kept = courses[static_cast<std::size_t>(rank)][b].kept;
      kept.resize(count);
      std::memcpy(kept.data() + shard.first, buckets[b]->state().data(), shard.count * sizeof(float));
    }
    return {};
  });
  world.shutdown();
  for (std::size_t b = 0; b < kBuckets; ++b) {
    std::vector<double> balance(count);
    for (int rank = 0; rank < size; ++rank) {
      const ShardCourse& course = courses[static_cast<std::size_t>(rank)][b];
      REQUIRE(course.results == courses.front()[b].results);
      for (int step = 0; step < kSteps; ++step) {
        const std::vector<float> came = gradients_of(rank, step, b, count);
        for (std::size_t i = 0; i < count; ++i) {
          balance[i] += static_cast<double>(came[i]);
          if (rank == 0) balance[i] -= static_cast<double>(course.results[static_cast<std::size_t>(step)][i]);
        }
      }
      for (std::size_t i = 0; i < count; ++i) balance[i] -= static_cast<double>(course.kept[i]);
    }
    for (const double one : balance) REQUIRE(std::abs(one) <= tolerance);
  }
}

}  // namespace roundelay::contract

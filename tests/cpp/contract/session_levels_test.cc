// A technique that takes a bucket through the levels by itself, on a lane that carries out two batches at
// once.
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "compress/technique.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/inproc_levels.h"
#include "tests/cpp/contract/session_world.h"
#include "tests/cpp/contract/technique_bucket.h"

namespace roundelay::contract {
namespace {

using collective::Fabric;
using runtime::Session;

// Sums a bucket: reduce-scatter in the node, allreduce of the shard between nodes, allgather in the node.
class ThroughLevels final : public compress::Technique {
 public:
  [[nodiscard]] std::string text() const override { return "levels"; }
  [[nodiscard]] std::size_t state_bytes(std::size_t, DType, std::span<const int>) const override { return 0; }
  collective::Task run(compress::Workspace& workspace, compress::Bucket bucket) const override {
    Fabric& inside = *workspace.levels().front();
    Fabric& between = *workspace.levels().back();
    const auto members = static_cast<std::size_t>(inside.group().size());
    const auto mine = static_cast<std::size_t>(inside.group().index);
    std::vector<std::size_t> shards(members, bucket.count / members * sizeof(float));
    shards.back() += bucket.count % members * sizeof(float);
    std::byte* const shard = bucket.buffer.data() + mine * shards.front();

    collective::ReducescatterCall scatter;
    static_cast<collective::Reduction&>(scatter) = bucket.reduction;
    scatter.input = bucket.buffer.data();
    scatter.output = {shard, shards[mine]};
    scatter.shard_bytes = shards;
    scatter.region = bucket.buffer.region;
    collective::Call call = scatter;
    co_await collective::Calling(inside, call);

    call = compress::allreduce_of({shard, 0, shards[mine]}, bucket, workspace);
    co_await collective::Calling(between, call);

    collective::AllgatherCall gather;
    gather.input = shard;
    gather.output = {bucket.buffer.data(), bucket.buffer.bytes};
    gather.receive_bytes = shards;
    gather.region = bucket.buffer.region;
    call = gather;
    co_await collective::Calling(inside, call);
    co_return Status{};
  }
  compress::Residual residual(std::size_t, const Scale&, const compress::Place&) const override { return {}; }
};

// Integers, so that every order of additions gives the same bits.
float element(int rank, int step, std::size_t bucket, std::size_t i) {
  return static_cast<float>((static_cast<std::size_t>(rank) + 1) * (i % 97) + bucket * 7) +
         static_cast<float>(step);
}

}  // namespace

TEST_CASE("a technique sums through the levels of its fabric, two batches at once", "[session][technique]") {
  constexpr std::size_t kCount = 601, kBuckets = 6;
  constexpr int kSteps = 10;
  const auto [nodes, members] = GENERATE(std::pair(2, 2), std::pair(3, 2), std::pair(2, 3));
  const int size = nodes * members;
  const TwoFabrics fabrics(nodes, members);
  SessionWorld world(size, {},
                     [&](runtime::SessionParts& parts) { parts.fabrics = fabrics.of(parts.rank_info.rank); });
  world.run([&](Session& session, int rank) -> std::string {
    std::vector<std::unique_ptr<TechniqueBucket>> buckets;
    for (std::size_t b = 0; b < kBuckets; ++b) {
      buckets.push_back(
          std::make_unique<TechniqueBucket>(session, std::make_shared<const ThroughLevels>(), kCount, b + 1));
      if (!buckets.back()->ok().ok()) return buckets.back()->ok().message();
    }
    for (int step = 0; step < kSteps; ++step) {
      for (std::size_t b = 0; b < kBuckets; ++b) {
        for (std::size_t i = 0; i < kCount; ++i) buckets[b]->elements()[i] = element(rank, step, b, i);
        const Status status = buckets[b]->start("b" + std::to_string(b));
        if (!status.ok()) return status.message();
      }
      session.end_linger();
      for (std::size_t b = 0; b < kBuckets; ++b) {
        if (const Status status = buckets[b]->finish(); !status.ok()) return status.message();
        if (!buckets[b]->outcome().applied) return "the technique did not apply";
        for (std::size_t i = 0; i < kCount; ++i) {
          float sum = 0;
          for (int r = 0; r < size; ++r) sum += element(r, step, b, i);
          if (buckets[b]->elements()[i] != sum) return "a wrong sum at " + std::to_string(i);
        }
      }
    }
    return {};
  });
  world.shutdown();
}

}  // namespace roundelay::contract

// Sessions whose ranks reduce buckets by csc: flat and over two levels, with ranks that die, differ or join.
#include <array>
#include <random>

#include "compress/registry.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/inproc_levels.h"
#include "tests/cpp/contract/session_trip.h"
#include "tests/cpp/contract/technique_bucket.h"

namespace roundelay::contract {
namespace {

using compress::TechniquePtr;
using runtime::Session;
using std::chrono::milliseconds;

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
  const InprocLevels one(2, 2, 0), other(2, 2, 0);
  SessionWorld world(size, {}, [&](runtime::SessionParts& parts) {
    if (!two_nodes) return;
    parts.fabrics.clear();
    for (const InprocLevels* levels : {&one, &other})
      parts.fabrics.push_back(collective::make_two_level_fabric(levels->of(parts.rank_info.rank)));
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
      session.flush();
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

// Does what another technique does. A rank can come to its end before each of its calls, and after the last.
class Watched final : public compress::Technique {
 public:
  Watched(TechniquePtr inner, std::function<void(int)> before)
      : inner_(std::move(inner)), before_(std::move(before)) {}
  [[nodiscard]] std::string_view name() const override { return inner_->name(); }
  [[nodiscard]] std::string text() const override { return inner_->text(); }
  [[nodiscard]] std::size_t state_bytes(std::size_t count, DType dtype,
                                        std::span<const int> levels) const override {
    return inner_->state_bytes(count, dtype, levels);
  }
  collective::Task run(compress::Stage& stage, compress::Bucket bucket) const override {
    collective::Task inner = inner_->run(stage, bucket);
    int calls = 0;
    for (inner.resume(); !inner.done(); inner.resume()) {
      before_(calls++);
      const collective::Task::Step step = inner.step();
      co_await collective::Calling(*step.fabric, *step.call);
    }
    before_(calls);
    co_return inner.status();
  }
  Status give_back(compress::Arithmetic& math, const compress::Bucket& bucket) const override {
    return inner_->give_back(math, bucket);
  }

 private:
  const TechniquePtr inner_;
  const std::function<void(int)> before_;
};

TEST_CASE("a rank that dies before or between the calls of csc is named", "[session][technique][csc]") {
  const int stage = GENERATE(0, 1);
  const bool connection_lost = GENERATE(false, true);
  INFO("stage " << stage << (connection_lost ? ", connection lost" : ", silent"));
  Config config;
  config.progress_timeout = milliseconds(150);
  config.log_level = LogLevel::kError;
  constexpr int kSize = 3, kDead = 1;
  SessionWorld world(kSize, config);
  std::atomic<bool> died{false};
  std::vector<std::string> causes(kSize);
  std::vector<std::unique_ptr<TechniqueBucket>> buckets(kSize);
  world.run([&](Session& session, int rank) -> std::string {
    const auto before = [&, rank](int call) {
      if (rank != kDead || call != stage || died) return;
      world.stop(kDead);
      if (connection_lost) world.data->fail(kDead);
      died = true;
    };
    auto& bucket = buckets[static_cast<std::size_t>(rank)];
    bucket = std::make_unique<TechniqueBucket>(
        session, std::make_shared<const Watched>(technique("csc:chunk=8,keep=0.5"), before), 64);
    if (!bucket->ok().ok()) return bucket->ok().message();
    std::fill_n(bucket->elements(), 64, 1.0F);
    if (const Status status = bucket->start("b"); !status.ok()) return status.message();
    session.flush();
    if (rank != kDead) causes[static_cast<std::size_t>(rank)] = bucket->finish().message();
    return {};
  });
  CHECK(died);
  CHECK(causes[0] == causes[2]);
  INFO(causes[0]);
  CHECK(causes[0].find(connection_lost ? "member 1" : "rank 1") != std::string::npos);
  for (auto& one : world.stopped) one = false;
  world.shutdown();
}

TEST_CASE("ranks whose csc differs get both texts before anything is sent", "[session][technique][csc]") {
  SessionWorld world(2);
  world.run([](Session& session, int rank) -> std::string {
    TechniqueBucket bucket(session, technique(rank == 0 ? "csc:keep=0.1,chunk=8" : "csc:keep=0.2,chunk=8"),
                           64);
    if (!bucket.ok().ok()) return bucket.ok().message();
    std::fill_n(bucket.elements(), 64, 1.0F);
    const Status status = bucket.run("b");
    if (status.code() != StatusCode::kMismatch) return "no mismatch: " + status.message();
    for (const char* text : {"keep=0.1,", "keep=0.2,"})
      if (status.message().find(text) == std::string::npos) return "without " + std::string(text);
    if (bucket.read() != std::vector<float>(64, 1.0F)) return "the elements have changed";
    if (bucket.state() != Bytes(bucket.state().size())) return "the state has changed";
    return sum_once(session, rank, "after", 2);
  });
  world.shutdown();
}

TEST_CASE("while a rank has joined, csc keeps its state and its run", "[session][technique][csc][join]") {
  constexpr std::size_t kCount = 80;
  SessionWorld world(2);
  world.run([](Session& session, int rank) -> std::string {
    TechniqueBucket bucket(session, technique("csc:keep=0.5,chunk=8,norms=previous"), kCount);
    if (!bucket.ok().ok()) return bucket.ok().message();
    const auto step = [&] {
      std::fill_n(bucket.elements(), kCount, 1.0F);
      return bucket.run("b");
    };
    if (const Status status = step(); !status.ok()) return status.message();
    if (!bucket.outcome().applied) return "the technique did not apply before";
    const Bytes state = bucket.state();
    const std::vector<std::uint32_t> first = bucket.sent();
    for (int i = 0; rank == 1 && i < 3; ++i) {
      if (const Status status = step(); !status.ok()) return status.message();
      if (bucket.outcome().applied) return "the technique applied while rank 0 had joined";
      if (bucket.read() != std::vector<float>(kCount, 1.0F)) return "wrong values alone";
    }
    if (const auto last = join(session); !last.ok()) return last.status().message();
    if (bucket.state() != state) return "the state has changed";
    if (const Status status = step(); !status.ok()) return status.message();
    if (bucket.sent() != first) return "the norms of the last run did not choose";
    if (const Status status = step(); !status.ok()) return status.message();
    return bucket.sent() != first ? "" : "the same chunks again, while others waited";
  });
  world.shutdown();
}

}  // namespace
}  // namespace roundelay::contract
